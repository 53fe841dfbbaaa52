//! A record keeps the windows it was written under, whatever other classes come into the file later.

use std::time::Duration;

use onecho::testing::SimDisk;
use onecho::*;

const T: Tenant = Tenant::new("t");
const OPERATIONS: [Operation; 3] = [Operation::new("a"), Operation::new("b"), Operation::new("c")];

fn request(operation: &Operation, key: &str) -> Request {
    Request::new(&T, operation, &Key::parse(key).unwrap()).bytes("body", key)
}

#[test]
fn a_batch_that_brings_a_new_class_leaves_the_classes_of_the_file_alone() {
    let disk = SimDisk::seeded(1);
    let options = || {
        OPERATIONS.iter().zip(1..).fold(Options::new(), |options, (operation, days)| {
            let window = Duration::from_secs(days * 86_400);
            options.operation(operation, Policy::new().body_window(window).key_window(window))
        })
    };
    let store = disk.open(options()).unwrap();
    let run = |request: &Request| store.execute(request, |_| Ok(Outcome::succeeded(200))).unwrap();
    let told = |reply: Reply| reply.into_finished().unwrap().key_until;
    let first = [told(run(&request(&OPERATIONS[0], "k"))), told(run(&request(&OPERATIONS[1], "k")))];
    // One commit: the first class of the file again, then a class that the file does not have.
    let batch = [(request(&OPERATIONS[0], "l"), ()), (request(&OPERATIONS[2], "l"), ())];
    let answers = store.execute_many(&batch, |(), _| Ok(Outcome::succeeded(200)));
    let answers: Vec<Timestamp> = answers.into_iter().map(|reply| told(reply.unwrap())).collect();

    let again =
        |store: &Store, operation: &Operation, key| match store.status(request(operation, key).scope()) {
            Ok(Status::Finished(finished)) => finished.key_until,
            other => panic!("{other:?}"),
        };
    let check = |store: &Store| {
        assert_eq!([again(store, &OPERATIONS[0], "k"), again(store, &OPERATIONS[1], "k")], first);
        assert_eq!(vec![again(store, &OPERATIONS[0], "l"), again(store, &OPERATIONS[2], "l")], answers);
        assert!(store.verify().unwrap().is_clean());
    };
    check(&store);
    store.close().unwrap();
    check(&disk.open(options()).unwrap());
}
