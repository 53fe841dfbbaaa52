use onecho::{testing::SimDisk, *};
use std::sync::atomic::{AtomicU64, Ordering};
const T: Tenant = Tenant::new("t");
const OP: Operation = Operation::new("op");
const N: Kind<i64> = Kind::counter("n");
const J: Kind<String> = Kind::json("j");

fn req(k: &str) -> Request {
    Request::new(&T, &OP, &Key::parse(k).unwrap()).bytes("body", k)
}

#[test]
fn one() {
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new()).unwrap();
    let runs = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..64 {
            s.spawn(|| {
                for k in 0..50 {
                    let r = store
                        .execute(&req(&format!("k{k}")), |fx| {
                            runs.fetch_add(1, Ordering::Relaxed);
                            fx.add(&N, "a", 1, i64::MIN)?;
                            let r = fx.create(&J, &format!("k{k}"), &"x".into())?;
                            fx.unique("u", &format!("u{k}"), &r)?;
                            Ok(Outcome::succeeded(201).json(&k)?.resource(&r))
                        })
                        .unwrap();
                    assert!(r.into_finished().is_ok());
                }
            });
        }
    });
    assert_eq!(runs.load(Ordering::Relaxed), 50);
    assert_eq!(store.get(&T, &N, "a").unwrap().unwrap().value, 50);
    println!("{:?}", store.stats());
    let report = store.verify().unwrap();
    assert!(report.is_clean(), "{report:?}");
    store.close().unwrap();
    let store = disk.open(Options::new()).unwrap();
    assert!(store.peek(&req("k1")).is_none());
    assert!(store.execute(&req("k1"), |_| panic!()).unwrap().is_replay());
    let cmds: Vec<_> = (0..1000).map(|n| (req(&format!("m{}", n % 700)), n)).collect();
    let ans = store.execute_many(&cmds, |n, fx| {
        let v = fx.get(&N, "a")?.map_or(0, |r| r.value);
        if *n % 100 == 0 {
            fx.put(&N, "a", &(v + 1))?;
        }
        Ok(Outcome::succeeded(200))
    });
    let done = ans.iter().filter(|a| matches!(a, Ok(Reply::Done(_)))).count();
    let replay = ans.iter().filter(|a| matches!(a, Ok(Reply::Replay(_)))).count();
    assert_eq!((done, replay), (700, 300));
    assert_eq!(store.get(&T, &N, "a").unwrap().unwrap().value, 57);
    println!("{:?}", store.stats());
    assert!(store.verify().unwrap().is_clean());
}
