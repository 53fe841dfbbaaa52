//! The named parts of a request, hashed as they are named.
//!
//! Owns: what a part may be called, and the digests of one part; their layout is in the module above. Must
//! not know: policies, records, or which parts are compared.

use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::few::Few;
use crate::core::text::{Text, is_printable_ascii};
use crate::core::{finite, json};

/// The name of a part has this many bytes at most.
pub const PART_NAME_BYTES_MAX: usize = 64;
/// A request has this many parts at most; [`RESERVED`] is not counted.
pub const PARTS_MAX: usize = 32;
/// The part that carries the operation where the key is the tenant's: always compared, never chosen.
pub const RESERVED: &str = "@operation";

// Domain separation of the part digests.
const OCTETS: u8 = 1;
const FIELDS: u8 = 2;

/// The named parts of one request, as digests. A clone copies no content.
#[derive(Clone, Default)]
pub struct Parts {
    /// Strictly ascending by name.
    list: Few<Part>,
    defect: Option<Arc<str>>,
}

/// One part: what it is called, and what is left of it.
#[derive(Clone)]
pub(super) struct Part {
    pub name: Text,
    pub digests: Digests,
}

/// Both digests of one part, equal where spelling makes no difference.
#[derive(Clone, Copy)]
pub(super) struct Digests {
    pub exact: [u8; 32],
    pub canonical: [u8; 32],
}

impl Parts {
    /// No part yet. A request without one has nothing to compare and gets no fingerprint.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part that is compared byte by byte under each policy.
    pub fn bytes(&mut self, name: &str, value: &[u8]) {
        self.add(name, || Digests::same(octets(value)));
    }

    /// Adds a JSON text. What has no canonical text is compared byte by byte.
    pub fn json(&mut self, name: &str, text: &[u8]) {
        self.add(name, || {
            let exact = octets(text);
            match json::canonical(text) {
                Some(Cow::Owned(other)) => Digests { exact, canonical: octets(&other) },
                Some(Cow::Borrowed(_)) | None => Digests::same(exact),
            }
        });
    }

    /// Adds name-value pairs, such as a query or a form. The order of different names is formatting; the
    /// values of one name keep their order.
    pub fn fields(&mut self, name: &str, fields: &[(&str, &str)]) {
        self.add(name, || {
            let exact = fields_digest(fields);
            if fields.is_sorted_by_key(|(field, _)| field) {
                return Digests::same(exact);
            }
            let mut sorted = fields.to_vec();
            sorted.sort_by_key(|&(field, _)| field); // stable, for the values of one name
            Digests { exact, canonical: fields_digest(&sorted) }
        });
    }

    /// Adds a value by its canonical JSON text, since a `HashMap` has no order worth comparing.
    ///
    /// # Errors
    /// Adds nothing and says why, if the value has no faithful JSON text: a NaN or infinity, a failure of its
    /// own, one member twice, or nesting beyond [`json::DEPTH_MAX`].
    pub fn value<V: Serialize>(&mut self, name: &str, value: &V) -> Result<(), String> {
        finite::all_finite(value).map_err(|unfit| format!("part {name:?}: {unfit}"))?;
        let text = serde_json::to_vec(value).map_err(|error| format!("part {name:?}: {error}"))?;
        let Some(canonical) = json::canonical(&text) else {
            return Err(format!(
                "part {name:?}: the value writes one member twice or nests deeper than {} levels",
                json::DEPTH_MAX
            ));
        };
        self.add(name, || Digests::same(octets(&canonical)));
        Ok(())
    }

    /// Adds the operation under [`RESERVED`], for keys that are the tenant's and not the operation's.
    pub fn operation(&mut self, operation: &str) {
        self.insert(RESERVED, || Digests::same(octets(operation.as_bytes())));
    }

    /// True if the request has no part of its own; the operation is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.own() == 0
    }

    /// What is wrong with how the parts were named: the first defect, after which no part was added. Such
    /// parts get no fingerprint and are never the same as a recorded one.
    #[must_use]
    pub fn defect(&self) -> Option<&str> {
        self.defect.as_deref()
    }

    fn add(&mut self, name: &str, digests: impl FnOnce() -> Digests) {
        if let Some(defect) = name_defect(name) {
            self.record(defect);
        } else if self.own() == PARTS_MAX {
            self.record(format!("the request has more than {PARTS_MAX} parts; put some together"));
        } else {
            self.insert(name, digests);
        }
    }

    /// The digests are made only for a part that is kept.
    fn insert(&mut self, name: &str, digests: impl FnOnce() -> Digests) {
        if self.defect.is_some() {
            return;
        }
        match self.position(name) {
            Ok(_) => self.record(format!("the part {name:?} is named twice; name each part once")),
            Err(at) => {
                self.list.insert(at, Part { name: name.into(), digests: digests() });
            }
        }
    }

    fn record(&mut self, defect: String) {
        self.defect.get_or_insert_with(|| defect.into());
    }

    /// How many parts there are besides the reserved one.
    fn own(&self) -> usize {
        self.all().len() - usize::from(self.get(RESERVED).is_some())
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.list.as_slice().binary_search_by(|part| part.name.as_bytes().cmp(name.as_bytes()))
    }

    /// Ascending by name.
    pub(super) fn all(&self) -> slice::Iter<'_, Part> {
        self.list.as_slice().iter()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Part> {
        self.position(name).ok().map(|at| &self.list.as_slice()[at])
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.list.as_slice().iter().map(|part| &*part.name).collect();
        f.debug_struct("Parts").field("names", &names).field("defect", &self.defect).finish()
    }
}

impl Digests {
    fn same(exact: [u8; 32]) -> Self {
        Self { exact, canonical: exact }
    }
}

fn octets(content: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update([OCTETS]).chain_update(content).finalize().into()
}

fn fields_digest(fields: &[(&str, &str)]) -> [u8; 32] {
    let mut hasher = Sha256::new().chain_update([FIELDS]).chain_update(n64(fields.len()));
    for (name, value) in fields {
        framed(&mut hasher, name.as_bytes());
        framed(&mut hasher, value.as_bytes());
    }
    hasher.finalize().into()
}

/// A text whose end cannot be moved.
pub(super) fn framed(hasher: &mut Sha256, text: &[u8]) {
    hasher.update(n64(text.len()));
    hasher.update(text);
}

/// A length or a count, as it stands in every digest.
pub(super) fn n64(length: usize) -> [u8; 8] {
    // `usize` has 64 bits at most on every target Rust has.
    (length as u64).to_be_bytes()
}

/// Why nothing can be called so.
pub(crate) fn name_defect(name: &str) -> Option<String> {
    if name.is_empty() {
        Some("a part has no name; name it".to_owned())
    } else if name.len() > PART_NAME_BYTES_MAX {
        Some(format!("a part name has {} bytes; {PART_NAME_BYTES_MAX} are allowed", name.len()))
    } else if !is_printable_ascii(name) && name.chars().any(char::is_control) {
        Some(format!("the part name {name:?} has a control character; leave it out"))
    } else if name == RESERVED {
        Some(format!("the part name {RESERVED:?} is reserved; choose another"))
    } else {
        None
    }
}
