use super::*;
use crate::core::claim::Moment;
use crate::core::message::{OnDead, Terms};

const SECOND: u64 = 1_000;
const MADE: Timestamp = Timestamp(1_000_000);

fn message(contract: Contract) -> Status {
    Status {
        tenant: Text::constant("shop"),
        destination: Text::constant("out"),
        order: None,
        operation: [7; 16],
        terms: Terms {
            contract,
            on_dead: OnDead::Block,
            lease: 60 * SECOND,
            settles_within: 900 * SECOND,
            backoff: (SECOND, 60 * SECOND),
            attempts_max: 3,
        },
        not_before: Timestamp(0),
        since: MADE,
        attempts: 0,
        left: 3,
        asked: 0,
        stage: Stage::Waiting { due: MADE },
        why: None,
        next: None,
    }
}

/// So many seconds after the message was made, by the entry `seq` of the process with this epoch.
fn at(seconds: u64, seq: u64, epoch: u64) -> When {
    let monotonic = seconds * SECOND;
    let uptime = Uptime { now: Moment { epoch, monotonic }, opened: 0 };
    When { now: Timestamp(MADE.0 + monotonic), uptime, seq }
}

fn taken(status: &Status, is_job: bool, when: &When) -> Status {
    status.after(5, Guard::Version(5), &Event::Taken { is_job }, when).unwrap()
}

fn ended(status: &Status, token: u64, end: End, when: &When) -> Option<Status> {
    status.after(6, Guard::Token(token), &Event::Ended(end), when)
}

fn not_applied() -> End {
    End::NotApplied { retry_after: None, why: Text::constant("busy") }
}

fn unknown() -> End {
    End::Unknown(Text::constant("cut"))
}

/// One message in each stage, with the token that its end needs.
fn each_stage() -> Vec<(&'static str, Status, Option<u64>)> {
    let waiting = message(Contract::Queryable);
    let sending = taken(&waiting, false, &at(0, 10, 1));
    let unsure = ended(&sending, 10, unknown(), &at(1, 11, 1)).unwrap();
    let asking = taken(&unsure, false, &at(9, 12, 1));
    let blind = taken(&message(Contract::Neither), false, &at(0, 10, 1));
    vec![
        ("queued", Status { stage: Stage::Queued, ..waiting.clone() }, None),
        ("waiting", waiting.clone(), None),
        ("sending", sending.clone(), Some(10)),
        ("doing", taken(&waiting, true, &at(0, 10, 1)), Some(10)),
        ("unsure", unsure, Some(10)),
        ("asking", asking, Some(12)),
        ("unknown", ended(&blind, 10, unknown(), &at(1, 11, 1)).unwrap(), Some(10)),
        ("dead", ended(&sending, 10, End::Refused(Text::constant("no")), &at(1, 11, 1)).unwrap(), None),
        ("delivered", ended(&sending, 10, End::Delivered(None), &at(1, 11, 1)).unwrap(), None),
        ("discarded", Status { stage: Stage::Discarded { at: MADE }, ..waiting }, None),
    ]
}

/// The table in the module's documentation, cell by cell: what may happen to a message in each stage.
#[test]
fn only_what_the_table_allows_happens() {
    let when = at(30, 20, 1);
    for (name, status, token) in each_stage() {
        let may = |guard: Guard, event: Event| status.after(6, guard, &event, &when).is_some();
        let version = Guard::Version(6);
        let takes = ["waiting", "unsure"].contains(&name);
        assert_eq!(may(version, Event::Taken { is_job: false }), takes, "{name} taken");
        assert_eq!(may(version, Event::Taken { is_job: true }), name == "waiting", "{name} taken as a job");
        // Its lease is not over yet.
        assert!(!may(version, Event::Lapsed), "{name} lapsed");
        let settles = ["unsure", "unknown", "dead", "asking"].contains(&name);
        for how in [Settle::Delivered, Settle::SendAgain, Settle::Discard] {
            assert_eq!(may(Guard::Stage, Event::Settled(how)), settles, "{name} settled {how:?}");
        }
        let token = Guard::Token(token.unwrap_or(10));
        let is_flying = ["sending", "doing", "asking"].contains(&name);
        let is_in_doubt = ["unsure", "unknown"].contains(&name);
        for end in [End::Delivered(None), not_applied(), End::Refused(Text::constant("no"))] {
            assert_eq!(may(token, Event::Ended(end)), is_flying || is_in_doubt, "{name} ended");
        }
        for end in [unknown(), End::Returned] {
            assert_eq!(may(token, Event::Ended(end)), is_flying, "{name} ended without a result");
        }
        // With a guard that does not hold nothing happens at all.
        assert!(!may(Guard::Version(5), Event::Taken { is_job: false }), "{name} taken by who came late");
        assert!(!may(Guard::Token(99), Event::Ended(End::Delivered(None))), "{name} ended by a stranger");
        assert!(!may(Guard::Stage, Event::Ended(End::Delivered(None))), "{name} ended without a token");
        assert!(!may(version, Event::Ended(End::Delivered(None))), "{name} ended with a version");
    }
}

#[test]
fn an_attempt_without_an_end_is_what_its_contract_makes_of_it() {
    for (contract, is_job) in [
        (Contract::Idempotent, false),
        (Contract::Queryable, false),
        (Contract::Neither, false),
        (Contract::Neither, true),
    ] {
        let sending = taken(&message(contract), is_job, &at(0, 10, 1));
        // By the clock of this process, or at once by another one.
        for when in [at(60, 11, 1), at(1, 11, 2)] {
            let lapsed = sending.after(10, Guard::Version(10), &Event::Lapsed, &when).unwrap();
            match (contract, is_job) {
                (Contract::Idempotent, _) | (_, true) => {
                    assert!(matches!(lapsed.stage, Stage::Waiting { due } if due > when.now));
                }
                (Contract::Queryable, _) => assert!(matches!(lapsed.stage, Stage::Unsure { .. })),
                (Contract::Neither, _) => assert!(matches!(lapsed.stage, Stage::Unknown { .. })),
            }
            assert_eq!((lapsed.attempts, lapsed.left), (1, 2));
        }
        assert!(sending.after(10, Guard::Version(10), &Event::Lapsed, &at(59, 11, 1)).is_none());
    }
}

/// "It has not arrived" is evidence only when nothing of it can arrive any more.
#[test]
fn a_no_counts_when_its_time_is_over_and_a_yes_at_once() {
    let sending = taken(&message(Contract::Queryable), false, &at(0, 10, 1));
    let unsure = ended(&sending, 10, unknown(), &at(1, 11, 1)).unwrap();
    let asking = taken(&unsure, false, &at(100, 12, 1));
    let early = ended(&asking, 12, not_applied(), &at(101, 13, 1)).unwrap();
    assert!(matches!(early.stage, Stage::Unsure { due, .. } if due.0 == MADE.0 + 900 * SECOND));
    let asking = taken(&early, false, &at(900, 14, 1));
    let over = ended(&asking, 14, not_applied(), &at(901, 15, 1)).unwrap();
    assert!(matches!(over.stage, Stage::Waiting { .. }));
    let found = ended(&asking, 14, End::Delivered(None), &at(901, 15, 1)).unwrap();
    assert!(matches!(found.stage, Stage::Delivered { .. }));
    // Its question was asked too early, however late the answer is heard of: it is asked again.
    let asking = taken(&unsure, false, &at(899, 16, 1));
    let stale = ended(&asking, 16, not_applied(), &at(5_000, 17, 1)).unwrap();
    assert!(matches!(stale.stage, Stage::Unsure { due, .. } if due.0 == MADE.0 + 5_000 * SECOND));
    // After a restart the whole time is counted again.
    let restarted =
        When { uptime: Uptime { opened: 899 * SECOND, ..at(900, 0, 2).uptime }, ..at(900, 14, 2) };
    let asking = taken(&early, false, &restarted);
    let again = ended(&asking, 14, not_applied(), &restarted).unwrap();
    assert!(matches!(again.stage, Stage::Unsure { due, .. } if due.0 == MADE.0 + (900 + 899) * SECOND));
}

#[test]
fn what_is_asked_too_often_waits_for_people() {
    let sending = taken(&message(Contract::Queryable), false, &at(0, 10, 1));
    let mut status = ended(&sending, 10, unknown(), &at(1, 11, 1)).unwrap();
    for number in 0..3 {
        assert!(matches!(status.stage, Stage::Unsure { .. }), "after {number} questions");
        let seconds = 100 * (number + 1);
        let asking = taken(&status, false, &at(seconds, 20 + number, 1));
        status = ended(&asking, 20 + number, unknown(), &at(seconds + 1, 30 + number, 1)).unwrap();
    }
    assert!(matches!(status.stage, Stage::Unknown { .. }));
    assert_eq!((status.attempts, status.asked), (1, 3));
}

#[test]
fn what_was_given_back_is_as_it_was() {
    let waiting = message(Contract::Neither);
    let back = ended(&taken(&waiting, false, &at(0, 10, 1)), 10, End::Returned, &at(0, 11, 1));
    assert!(back == Some(waiting));
}

/// The end of an attempt that is in doubt, by its own call, is no guess, however late it comes; once the
/// message goes on it is nothing any more.
#[test]
fn a_late_end_counts_while_nobody_has_gone_on() {
    let sending = taken(&message(Contract::Neither), false, &at(0, 10, 1));
    let lapsed = sending.after(10, Guard::Version(10), &Event::Lapsed, &at(60, 11, 1)).unwrap();
    let late = ended(&lapsed, 10, End::Delivered(None), &at(70, 12, 1)).unwrap();
    assert!(matches!(late.stage, Stage::Delivered { .. }));
    let again = lapsed.after(11, Guard::Stage, &Event::Settled(Settle::SendAgain), &at(61, 12, 1)).unwrap();
    assert!(ended(&again, 10, End::Delivered(None), &at(70, 13, 1)).is_none());
    let second = taken(&again, false, &at(62, 13, 1));
    assert!(ended(&second, 10, End::Delivered(None), &at(70, 14, 1)).is_none());
    assert_eq!((second.attempts, second.left), (2, 2));
}
