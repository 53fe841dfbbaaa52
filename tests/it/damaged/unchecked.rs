//! Without the check at the open, the documented limit: the storage engine reads pages without their
//! checksums, so a damaged one may make it panic or a row look absent. What holds even then: no answer is
//! another's.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use onecho::Store;

use super::{Chance, Said, cases, make, options, quick_dir, seed};

const JOB: &str = "ONECHO_TEST_UNCHECKED";

/// Plays both sides: started again with a job, it flips bits until it has done them all or something panics,
/// which may take the whole process.
#[test]
fn without_the_check_no_answer_is_anothers() {
    if let Ok(job) = std::env::var(JOB) {
        return child(&job);
    }
    let seed = seed();
    let flips = cases(400);
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    make(&path);
    let (mut done, mut letters) = (0, String::new());
    while done < flips {
        let job = format!("{seed} {done} {flips} {}", path.display());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "damaged::unchecked::without_the_check_no_answer_is_anothers", "--nocapture"])
            .env(JOB, job)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let told: String = said.filter_map(|line| line.strip_prefix("flip ").map(str::to_owned)).collect();
        let status = child.wait().unwrap();
        done += told.len() as u64;
        letters += &told;
        if !status.success() {
            letters.push('p');
            done += 1;
        }
    }
    let count = |letter| letters.chars().filter(|&told| told == letter).count();
    let _ = writeln!(
        std::io::stderr(),
        "{flips} flips without the check: {} harmless, {} errors, {} told by verify only, {} gone in silence, {} panics",
        count('h'),
        count('e'),
        count('v'),
        count('g'),
        count('p'),
    );
    assert_eq!(count('w'), 0, "ONECHO_SEED={seed}: an answer is another's");
    assert!(count('h') > 0 && count('e') > 0, "ONECHO_SEED={seed}: {letters}");
}

fn child(job: &str) {
    let mut words = job.splitn(4, ' ');
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (seed, first, end) = (number(), number(), number());
    let path = Path::new(words.next().unwrap());
    let sound = std::fs::read(path).unwrap();
    let flipped = path.with_extension("flipped");
    for flip in first..end {
        let bit = Chance(seed ^ flip << 20).below(sound.len() * 8);
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&flipped, bytes).unwrap();
        let letter = look(&flipped);
        std::io::stdout().write_all(format!("\nflip {letter}\n").as_bytes()).unwrap();
    }
}

fn look(path: &Path) -> char {
    let Ok(store) = Store::open(path, options().check_at_open_max(0)) else {
        return 'e';
    };
    let said = Said::of(&store);
    let report = store.verify();
    if !said.wrong.is_empty() {
        return 'w';
    }
    match (said.errors, said.gone.is_empty(), report) {
        (0, true, Ok(report)) if report.is_clean() => 'h',
        (0, false, Ok(report)) if report.is_clean() => 'g',
        (0, _, _) => 'v',
        _ => 'e',
    }
}
