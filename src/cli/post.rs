//! Messages and the jobs of events: look at them, decide about those that nobody delivers. Owns which of them
//! are an inbox's, and the words; what may be decided, the store says.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::exit::{Exit, Failure, say};
use super::line::{Shown, contract};
use super::look::print_fields;
use super::output::{json, print};
use super::resolve::{EntryLine, open_as};
use super::span::{ago, shown};
use super::work::{Post, PostDrop, PostList, PostSettle, PostShow, PostState};
use crate::{
    ErrorKind, EventOrigin, MessageId, MessageRecord, MessageState, Scope, Settle, Status, Store, Tenant,
    Workers,
};

/// What the operation of an inbox begins with, as `Inbox::operation` makes it.
const INBOX: &str = "onecho:inbox/";

/// One message.
#[derive(Serialize)]
struct PostLine {
    id: String,
    state: &'static str,
    tenant: String,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    inbox: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_time_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<String>,
    contract: &'static str,
    operation_id: String,
    since_ms: u64,
    age_ms: u64,
    attempts: u32,
    attempts_left: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// One message with what it says and what was done to it.
#[derive(Serialize)]
struct PostWhole {
    #[serde(flatten)]
    line: PostLine,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Shown>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<EntryLine>,
}

/// The messages that are shown: all, or the jobs of events alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Outbox,
    Inbox,
}

pub(super) fn outbox(what: &Post) -> Result<Exit, Failure> {
    run(what, Side::Outbox)
}

pub(super) fn inbox(what: &Post) -> Result<Exit, Failure> {
    run(what, Side::Inbox)
}

fn run(what: &Post, side: Side) -> Result<Exit, Failure> {
    match what {
        Post::List(args) => list(args, side),
        Post::Show(args) => show(args, side),
        Post::Requeue(args) => settle(args, side, Settle::SendAgain),
        Post::Delivered(args) => settle(args, side, Settle::Delivered),
        Post::Drop(PostDrop { settle: args, yes: true }) => settle(args, side, Settle::Discard),
        Post::Drop(PostDrop { settle: PostSettle { id, .. }, yes: false }) => Err(Failure::usage(format!(
            "{id} would never be sent again, and its content is gone then: say `--yes` if that is meant"
        ))),
    }
}

fn list(args: &PostList, side: Side) -> Result<Exit, Failure> {
    let tenant = args.tenant.as_deref().map(Tenant::parse).transpose().map_err(Failure::usage)?;
    let store = args.at.open()?;
    let events = Events::of(&store, side)?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    if !args.json && left > 0 {
        print(&format!("{:<10} {:<10} {:>7} {:>5}  TENANT DESTINATION", "ID", "STATE", "AGE", "TRIES"))?;
    }
    for found in store.messages() {
        if left == 0 {
            break;
        }
        let (id, state) = found?;
        let is_asked = args.state.is_empty() || args.state.contains(&state_of(&state));
        if !is_asked || !events.has(id) {
            continue;
        }
        let Some(record) = store.message_record(id)? else { continue };
        if tenant.as_ref().is_some_and(|tenant| *tenant != record.tenant)
            || args.destination.as_ref().is_some_and(|destination| *destination != record.destination)
            || args.older_than.is_some_and(|span| ago(record.since) < span)
        {
            continue;
        }
        left -= 1;
        let line = events.line(&record);
        if !print(&if args.json { json(&line) } else { line.row() })? {
            break;
        }
    }
    Ok(Exit::Well)
}

fn show(args: &PostShow, side: Side) -> Result<Exit, Failure> {
    let id = MessageId::parse(&args.id).map_err(Failure::usage)?;
    let store = args.at.open()?;
    let events = Events::of(&store, side)?;
    let Some(record) = store.message_record(id)?.filter(|_| events.has(id)) else {
        return Ok(absent(id, side));
    };
    let answer = match &record.state {
        MessageState::Delivered { answer, .. } => answer.as_ref().map(|answer| Shown::from(&answer[..])),
        _ => None,
    };
    let history: Vec<EntryLine> = store.message_history(id)?.into_iter().map(EntryLine::from).collect();
    let (headers, payload) = (record.headers.clone(), record.payload.as_ref().map(|it| Shown::from(&it[..])));
    let mut whole = PostWhole { line: events.line(&record), headers, payload, answer, history };
    if args.json {
        print(&json(&whole))?;
        return Ok(Exit::Well);
    }
    let history = std::mem::take(&mut whole.history);
    print_fields(&whole)?;
    for entry in history {
        if !print(&entry.text())? {
            break;
        }
    }
    Ok(Exit::Well)
}

fn settle(args: &PostSettle, side: Side, how: Settle) -> Result<Exit, Failure> {
    let id = MessageId::parse(&args.id).map_err(Failure::usage)?;
    let evidence = args.audit.evidence()?;
    let store = open_as(&args.at, &args.audit.actor)?;
    if store.message(id)?.is_none() || !Events::of(&store, side)?.has(id) {
        return Ok(absent(id, side));
    }
    // Whoever was at it is gone, for this process has the store alone: what its attempt leaves is told first.
    Workers::new(&store).tick()?;
    match store.settle(id, how, evidence, &args.audit.actor) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Invalid => {
            let state = store.message(id)?.map_or("gone", |state| word(&state));
            let text =
                format!("{id} is {state}, and only a message that is dead or unknown is decided about");
            return Err(Failure::new(Exit::Partly, text));
        }
        Err(error) => return Err(error.into()),
    }
    let state = store.message(id)?.map_or("gone", |state| word(&state));
    print(&format!("{id} is {state}"))?;
    Ok(Exit::Well)
}

fn absent(id: MessageId, side: Side) -> Exit {
    say(&match side {
        Side::Outbox => format!("there is no message {id}"),
        Side::Inbox => format!("there is no event whose job is {id}"),
    });
    Exit::Partly
}

/// Which messages are jobs of events, and of which: known from the records of the events, which outlive what
/// a job says.
struct Events {
    side: Side,
    of: HashMap<MessageId, Scope>,
}

impl Events {
    fn of(store: &Store, side: Side) -> Result<Self, Failure> {
        let mut of = HashMap::new();
        if side == Side::Inbox {
            for found in store.records() {
                let (scope, status) = found?;
                let Status::Finished(finished) = status else { continue };
                if scope.operation.as_str().starts_with(INBOX) {
                    of.extend(finished.messages.iter().map(|id| (*id, scope.clone())));
                }
            }
        }
        Ok(Self { side, of })
    }

    fn has(&self, id: MessageId) -> bool {
        self.side == Side::Outbox || self.of.contains_key(&id)
    }

    fn line(&self, record: &MessageRecord) -> PostLine {
        let scope = self.of.get(&record.id);
        let event: Option<&EventOrigin> = record.event.as_ref();
        let (next, at) = match &record.state {
            MessageState::Waiting { next, .. } => (Some(next.0), None),
            MessageState::Delivered { at, .. } | MessageState::Discarded { at } => (None, Some(at.0)),
            _ => (None, None),
        };
        PostLine {
            id: record.id.to_string(),
            state: word(&record.state),
            tenant: record.tenant.as_str().to_owned(),
            destination: record.destination.clone(),
            inbox: scope.map(|scope| scope.operation.as_str()[INBOX.len()..].to_owned()),
            event_id: scope.map(|scope| scope.key.as_str().to_owned()),
            event_time_ms: event.and_then(|event| event.time).map(|time| time.0),
            stream: event.and_then(|event| event.stream.clone()),
            ordering_key: record.ordering_key.clone(),
            contract: contract(record.contract),
            operation_id: record.operation.to_string(),
            since_ms: record.since.0,
            age_ms: u64::try_from(ago(record.since).as_millis()).unwrap_or(u64::MAX),
            attempts: record.attempts,
            attempts_left: record.attempts_left,
            next_ms: next,
            at_ms: at,
            why: record.why.clone(),
        }
    }
}

impl PostLine {
    fn row(&self) -> String {
        let age = shown(std::time::Duration::from_millis(self.age_ms));
        let mut row = format!(
            "{:<10} {:<10} {age:>7} {:>5}  {} {}",
            self.id, self.state, self.attempts, self.tenant, self.destination
        );
        for (name, value) in [("event", &self.event_id), ("order", &self.ordering_key), ("why", &self.why)] {
            if let Some(value) = value {
                let _ = write!(row, "  {name}: {value}");
            }
        }
        row.replace(char::is_control, " ")
    }
}

fn state_of(state: &MessageState) -> PostState {
    match state {
        MessageState::Waiting { .. } => PostState::Waiting,
        MessageState::Sending { .. } => PostState::Sending,
        MessageState::Unknown { .. } => PostState::Unknown,
        MessageState::Delivered { .. } => PostState::Delivered,
        MessageState::Dead { .. } => PostState::Dead,
        MessageState::Discarded { .. } => PostState::Discarded,
    }
}

fn word(state: &MessageState) -> &'static str {
    match state_of(state) {
        PostState::Waiting => "waiting",
        PostState::Sending => "sending",
        PostState::Unknown => "unknown",
        PostState::Delivered => "delivered",
        PostState::Dead => "dead",
        PostState::Discarded => "discarded",
    }
}
