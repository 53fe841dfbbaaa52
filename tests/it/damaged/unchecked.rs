//! Without the check at the open, the documented limit: the storage engine reads pages without their
//! checksums, so a damaged one may make it panic or a row look absent. What holds even then: no answer is
//! another's.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

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
        let (told, hangs) = listen(&mut child);
        let status = child.wait().unwrap();
        done += told.len() as u64;
        letters += &told;
        if !status.success() {
            letters.push(if hangs { 'r' } else { 'p' });
            done += 1;
        }
    }
    let count = |letter| letters.chars().filter(|&told| told == letter).count();
    let _ = writeln!(
        std::io::stderr(),
        "{flips} flips without the check: {} harmless, {} errors, {} told by verify only, {} gone in silence, {} panics, {} that go round",
        count('h'),
        count('e'),
        count('v'),
        count('g'),
        count('p'),
        count('r'),
    );
    assert_eq!(count('w'), 0, "ONECHO_SEED={seed}: an answer is another's");
    assert!(count('h') > 0 && count('e') > 0, "ONECHO_SEED={seed}: {letters}");
}

/// Far above what one flip takes, also on a busy machine.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// What a child tells until it ends, and whether it had to be killed because it went round in a damaged tree.
fn listen(child: &mut Child) -> (String, bool) {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (tell, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let mut told = String::new();
    loop {
        match hear.recv_timeout(SILENCE_MAX) {
            Ok(line) => told += line.strip_prefix("flip ").unwrap_or_default(),
            Err(RecvTimeoutError::Disconnected) => return (told, false),
            Err(RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                return (told, true);
            }
        }
    }
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
