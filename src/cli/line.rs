//! What is told of a row, a resource and a command as JSON. Owns the names of the fields, which
//! `docs/cli.md` lists.

use serde::Serialize;
use serde_json::value::RawValue;

use super::exit::decides_elsewhere;
use crate::{
    Body, Bytes, CaseStep, Contract, Finished, Refused, Reply, Resource, ResourceRef, Status, Timestamp,
};

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    Executed,
    Replayed,
    Mismatch,
    Duplicate,
    InProgress,
    Unknown,
    Expired,
    Conflict,
    Refused,
    Error,
    Bad,
}

/// The part of a fingerprint that the store makes of the operation, where it is not in the scope.
const OPERATION_PART: &str = "@operation";

/// One line of the output: one row and its answer.
#[derive(Debug, Serialize)]
pub(super) struct RowLine {
    pub line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub result: Told,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
    /// The recorded outcome is a business refusal.
    #[serde(skip_serializing_if = "is_false")]
    failed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    formatting_only: bool,
    /// The key of the command that made what is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A resource by its name.
#[derive(Debug, Serialize)]
pub(super) struct Named {
    kind: String,
    id: String,
}

impl From<&ResourceRef> for Named {
    fn from(resource: &ResourceRef) -> Self {
        Self { kind: resource.kind.to_string(), id: resource.id.to_string() }
    }
}

impl RowLine {
    fn new(line: u64, key: Option<&str>, result: Told) -> Self {
        Self {
            line,
            key: key.map(str::to_owned),
            result,
            code: None,
            failed: false,
            resource: None,
            at_ms: None,
            parts: Vec::new(),
            formatting_only: false,
            made_by: None,
            error: None,
        }
    }

    /// A row that could not be read.
    pub fn bad(line: u64, why: String) -> Self {
        Self { error: Some(why), ..Self::new(line, None, Told::Bad) }
    }

    /// A row that the store could not take.
    pub fn error(line: u64, key: &str, why: String) -> Self {
        Self { error: Some(why), ..Self::new(line, Some(key), Told::Error) }
    }

    /// A row and what the store replied.
    pub fn reply(line: u64, key: &str, reply: Reply) -> Self {
        let new = |result| Self::new(line, Some(key), result);
        match reply {
            Reply::Done(finished) => new(Told::Executed).finished(&finished),
            Reply::Replay(finished) => new(Told::Replayed).finished(&finished),
            Reply::InProgress { owner, .. } => {
                Self { error: Some(format!("{owner} still runs it")), ..new(Told::InProgress) }
            }
            Reply::Unknown { .. } => new(Told::Unknown),
            Reply::Mismatch { parts, formatting_only, .. } => {
                Self { parts, formatting_only, ..new(Told::Mismatch) }
            }
            Reply::Expired { failed, code, at, resource, .. } => Self {
                code: Some(code),
                failed,
                at_ms: Some(at.0),
                resource: resource.as_ref().map(Named::from),
                ..new(Told::Expired)
            },
            Reply::Duplicate { held, made_by } => Self {
                resource: Some(Named::from(&held)),
                made_by: made_by.map(|scope| scope.key.as_str().to_owned()),
                ..new(Told::Duplicate)
            },
            Reply::Conflict { resource, .. } => {
                Self { resource: Some(Named::from(&resource)), ..new(Told::Conflict) }
            }
            Reply::Refused(Refused::NotAuthoritative { owner }) => {
                Self { error: Some(decides_elsewhere(&owner)), ..new(Told::Refused) }
            }
            Reply::Refused(_) => {
                Self { error: Some("the store has no room for it now".to_owned()), ..new(Told::Refused) }
            }
        }
    }

    /// A mismatch in a store whose keys are a tenant's, and not an operation's.
    pub fn is_of_another_operation(&self) -> bool {
        self.result == Told::Mismatch && self.parts.iter().any(|part| part == OPERATION_PART)
    }

    /// What a person is told beside the result.
    pub fn why(&self) -> String {
        match self.result {
            Told::Mismatch if self.formatting_only => " (formatting only)".to_owned(),
            Told::Duplicate => {
                self.made_by.as_ref().map(|key| format!(", made under the key {key}")).unwrap_or_default()
            }
            _ => self.error.clone().unwrap_or_default(),
        }
    }

    fn finished(mut self, finished: &Finished) -> Self {
        self.code = Some(finished.code);
        self.failed = finished.failed;
        self.at_ms = Some(finished.at.0);
        self.resource = finished.resource.as_ref().map(Named::from);
        self
    }
}

/// Bytes as a reader can take them: as JSON where they are, as text where they are that, else in base64.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl From<&[u8]> for Shown {
    fn from(bytes: &[u8]) -> Self {
        let mut shown = Self { value: None, text: None, base64: None };
        match str::from_utf8(bytes) {
            Ok(text) => match on_one_line(text) {
                Ok(value) => shown.value = Some(value),
                Err(_) => shown.text = Some(text.to_owned()),
            },
            Err(_) => shown.base64 = Some(base64(bytes)),
        }
        shown
    }
}

/// Line ends in what is JSON already are formatting, and would cut a JSON line in two.
fn on_one_line(text: &str) -> serde_json::Result<Box<RawValue>> {
    let value: &RawValue = serde_json::from_str(text)?;
    RawValue::from_string(value.get().replace(['\n', '\r'], " "))
}

/// One resource.
#[derive(Debug, Serialize)]
pub(super) struct ResourceLine<'k> {
    kind: &'k str,
    id: String,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_time_ms: Option<u64>,
    #[serde(flatten)]
    value: Shown,
}

impl<'k> ResourceLine<'k> {
    pub fn new(kind: &'k str, resource: &Resource<Bytes>) -> Self {
        Self {
            kind,
            id: resource.id.clone(),
            version: resource.version,
            event_time_ms: resource.event_time.map(|time| time.0),
            value: Shown::from(&resource.value[..]),
        }
    }
}

/// What became of one command.
#[derive(Debug, Default, Serialize)]
pub(super) struct StatusLine {
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_until_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_until_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Shown>,
    /// Why there is no body, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_gone: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepLine>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    evidence: Vec<String>,
}

/// A declared call of a command in Unknown.
#[derive(Debug, Serialize)]
struct StepLine {
    name: String,
    contract: &'static str,
    operation_id: String,
    open: bool,
}

/// The word for what a repeat does.
pub(super) fn contract(of: Contract) -> &'static str {
    match of {
        Contract::Idempotent => "idempotent",
        Contract::Queryable => "queryable",
        Contract::Neither => "neither",
    }
}

impl From<CaseStep> for StepLine {
    fn from(step: CaseStep) -> Self {
        let contract = contract(step.contract);
        Self { name: step.name, contract, operation_id: step.operation.to_string(), open: step.open }
    }
}

impl From<Status> for StatusLine {
    fn from(status: Status) -> Self {
        match status {
            Status::Absent => Self { state: "absent", ..Self::default() },
            Status::Processing { since, owner, lease_left } => Self {
                state: "processing",
                since_ms: Some(since.0),
                owner: Some(owner),
                lease_left_ms: Some(u64::try_from(lease_left.as_millis()).unwrap_or(u64::MAX)),
                ..Self::default()
            },
            Status::Unknown(case) => Self {
                state: "unknown",
                since_ms: Some(case.since.0),
                owner: Some(case.owner),
                attempts: Some(case.attempts),
                evidence: case.evidence.iter().map(ToString::to_string).collect(),
                steps: case.steps.into_iter().map(StepLine::from).collect(),
                ..Self::default()
            },
            Status::Finished(finished) => Self::finished(finished),
            Status::Tombstone { failed, code, resource, at } => Self {
                state: "expired",
                code: Some(code),
                failed: Some(failed),
                resource: resource.as_ref().map(Named::from),
                at_ms: Some(at.0),
                ..Self::default()
            },
        }
    }
}

impl StatusLine {
    /// Since when it is as it is: when it ended, or when it was begun or lost.
    pub fn since(&self) -> Option<Timestamp> {
        self.at_ms.or(self.since_ms).map(Timestamp)
    }

    /// How it ended, in a word, where it has.
    pub fn ended(&self) -> Option<String> {
        let how = if self.failed? { "failed" } else { "succeeded" };
        Some(format!("{how}({})", self.code?))
    }

    fn finished(finished: Finished) -> Self {
        let (body, gone, known) = match finished.body {
            Body::Present(bytes) => (Some(bytes), None, None),
            Body::Trimmed { digest, len } => (None, Some("trimmed"), Some((digest, len))),
            Body::NotKept { digest, len } => (None, Some("not kept"), Some((digest, len))),
        };
        let until = |time: Timestamp| (time != Timestamp::FOREVER).then_some(time.0);
        Self {
            state: "finished",
            code: Some(finished.code),
            failed: Some(finished.failed),
            resource: finished.resource.as_ref().map(Named::from),
            at_ms: Some(finished.at.0),
            body_until_ms: until(finished.body_until),
            key_until_ms: until(finished.key_until),
            generation: Some(finished.generation),
            body: body.as_ref().filter(|body| !body.is_empty()).map(|body| Shown::from(&body[..])),
            body_gone: gone,
            body_bytes: body.map(|body| body.len() as u64).or(known.map(|(_, len)| len)),
            body_sha256: known.map(|(digest, _)| digest.to_string()),
            ..Self::default()
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(flag: &bool) -> bool {
    !flag
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding, after RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = (word >> (18 - 6 * place)) as usize & 63;
            text.push(if place <= chunk.len() { char::from(BASE64[digit]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xFB, 0xFF, 0xBF]), "+/+/");
    }

    #[test]
    fn a_value_is_shown_on_one_line_and_no_number_is_rounded() {
        let shown = |bytes: &[u8]| serde_json::to_string(&Shown::from(bytes)).unwrap();
        assert_eq!(
            shown(b"{\"a\":\r\n 1.000000000000000000001}"),
            "{\"value\":{\"a\":   1.000000000000000000001}}"
        );
        assert_eq!(shown(b"\"two\nlines\""), "{\"text\":\"\\\"two\\nlines\\\"\"}");
        assert_eq!(shown(b"two\nlines"), "{\"text\":\"two\\nlines\"}");
        assert_eq!(shown(&[0xFF]), "{\"base64\":\"/w==\"}");
    }
}
