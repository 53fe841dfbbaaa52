//! What the journal keeps the digest of, for rows of messages. Owns the order of their fields, which
//! `docs/format.md` lists.

use super::{Errand, EventStamp, Flight, Letter, MessageId, Post, Queue, Stage, Status, Terms};
use crate::core::audit::Layout;
use crate::core::time::Timestamp;

impl Post {
    pub fn layout(&self, out: &mut Layout) {
        match self {
            Self::Status(status) => {
                out.u8(0);
                status.layout(out);
            }
            Self::Letter(letter) => {
                out.u8(1);
                letter.layout(out);
            }
            Self::Queue(Queue { head, tail, count, blocked }) => {
                out.u8(2);
                id(out, *head);
                id(out, *tail);
                out.u64(*count);
                maybe_time(out, *blocked);
            }
            Self::Known(known) => {
                out.u8(3);
                id(out, *known);
            }
            Self::Mark => out.u8(4),
        }
    }
}

impl Letter {
    fn layout(&self, out: &mut Layout) {
        out.count(self.headers.len());
        for (name, value) in &self.headers {
            out.text(name);
            out.text(value);
        }
        out.bytes(&self.payload);
        match &self.event {
            None => out.u8(0),
            Some(EventStamp { inbox, id, time, stream }) => {
                out.u8(1);
                out.text(inbox);
                out.text(id);
                maybe_time(out, *time);
                maybe_text(out, stream.as_deref());
            }
        }
    }
}

impl Status {
    fn layout(&self, out: &mut Layout) {
        out.text(&self.tenant);
        out.text(&self.destination);
        maybe_text(out, self.order.as_deref());
        out.raw(&self.operation);
        self.terms.layout(out);
        out.u64(self.not_before.0);
        out.u64(self.since.0);
        out.u32(self.attempts);
        out.u32(self.left);
        out.u32(self.asked);
        self.stage.layout(out);
        maybe_text(out, self.why.as_deref());
        match self.next {
            None => out.u8(0),
            Some(next) => {
                out.u8(1);
                id(out, next);
            }
        }
    }
}

impl Terms {
    fn layout(&self, out: &mut Layout) {
        out.u8(self.contract as u8);
        out.u8(self.on_dead as u8);
        out.u64(self.lease);
        out.u64(self.settles_within);
        out.u64(self.backoff.0);
        out.u64(self.backoff.1);
        out.u32(self.attempts_max);
    }
}

impl Stage {
    fn layout(&self, out: &mut Layout) {
        match self {
            Self::Queued => out.u8(0),
            Self::Waiting { due } => {
                out.u8(1);
                out.u64(due.0);
            }
            Self::Flying(flight) => {
                out.u8(2);
                flight.layout(out);
            }
            Self::Unsure { due, flight } => {
                out.u8(3);
                out.u64(due.0);
                flight.layout(out);
            }
            Self::Unknown { since, flight } => {
                out.u8(4);
                out.u64(since.0);
                flight.layout(out);
            }
            Self::Dead { since } => {
                out.u8(5);
                out.u64(since.0);
            }
            Self::Delivered { at, answer } => {
                out.u8(6);
                out.u64(at.0);
                out.maybe_bytes(answer.as_deref());
            }
            Self::Discarded { at } => {
                out.u8(7);
                out.u64(at.0);
            }
        }
    }
}

impl Flight {
    fn layout(&self, out: &mut Layout) {
        out.u64(self.token);
        match self.errand {
            Errand::Send => out.u8(0),
            Errand::Ask { token, started } => {
                out.u8(1);
                out.u64(token);
                out.moment(started);
            }
            Errand::Job => out.u8(2),
        }
        out.moment(self.started);
    }
}

fn id(out: &mut Layout, id: MessageId) {
    out.u64(id.seq);
    out.u32(id.ordinal);
}

fn maybe_time(out: &mut Layout, time: Option<Timestamp>) {
    match time {
        None => out.u8(0),
        Some(time) => {
            out.u8(1);
            out.u64(time.0);
        }
    }
}

fn maybe_text(out: &mut Layout, text: Option<&str>) {
    out.maybe_bytes(text.map(str::as_bytes));
}
