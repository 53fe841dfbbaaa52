//! Fingerprints: what was asked, as digests, and whether a retry asks the same.
//!
//! Owns: the named parts of a request, the matching policies, the stored [`Fingerprint`], the judgement. A
//! retry is judged by the record's own scheme, policy and part names, never by what the program says today,
//! so that a deploy changes nothing for what is stored. Schemes are only ever added.
//!
//! Must not know: where a part comes from (HTTP, a queue), records, storage, what a mismatch leads to. It
//! keeps no content: a part is hashed when it is named, and neither a part nor a fingerprint shows a digest
//! in `Debug`, since the digest of a short secret can be guessed.
//!
//! # Scheme 1
//!
//! SHA-256 throughout; `n64` is a length or a count as eight bytes, big end first.
//!
//! ```text
//! octets  = SHA-256( 01 content )
//! fields  = SHA-256( 02 n64(pairs) { n64(len) name n64(len) value }* )
//! request = SHA-256( "onecho request 1" n64(parts) { n64(len) name digest[32] }* )   names in byte order
//! ```
//!
//! | part | exact digest | canonical digest |
//! | --- | --- | --- |
//! | `bytes`, `@operation` | octets of the value | the same |
//! | `json` | octets of the text | octets of its canonical text; the same where it has none |
//! | `value` | octets of its canonical text | the same |
//! | `fields` | fields as they came | fields sorted by name, values of one name in their order |
//!
//! `bytes`, `json` and `value` share a tag on purpose: a program that changes from one to the other still
//! recognises a retry with the same octets. What has no canonical text never equals a canonical text, so no
//! two contents meet. The request digest is taken twice over the compared parts, once with their exact and
//! once with their canonical digests; equal content gives one digest, and then only one is stored.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::core::audit::Layout;
use crate::core::text::Text;

mod few;
mod parts;

use few::Few;
pub(crate) use parts::name_defect;
use parts::{Digests, Part, framed, n64};
pub use parts::{PARTS_MAX, Parts, RESERVED};

/// The only scheme there is so far; see the module documentation.
const SCHEME: u16 = 1;
/// Domain separation of the request digest.
const REQUEST_DOMAIN: &[u8] = b"onecho request 1";

/// When two requests under one key are the same request.
///
/// ```
/// use onecho::Compare;
/// const POLICY: Compare = Compare::Parts(&["path", "body"]);
/// assert_ne!(POLICY, Compare::Canonical);
/// ```
///
/// The policy is stored with each record, and a retry is judged by it: a change concerns new keys only.
/// Under each policy, requests whose compared parts agree byte for byte are the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compare {
    /// Every byte of every part counts, white space too. A mismatch that is nothing but formatting says so.
    Exact,
    /// JSON is compared without member order, white space and spelling of escapes, fields without the order
    /// of different names. Numbers are compared as written (`1` is not `1.0`), strings never as numbers.
    /// What is not strict JSON, or has a member twice, is compared byte by byte.
    Canonical,
    /// Only the named parts count, each as under `Canonical`. Each must be in the request.
    Parts(&'static [&'static str]),
}

/// What a retry asks, compared with what was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Match {
    /// The same request: all 32 bytes of the digest agree.
    Same,
    /// Another request.
    Differs {
        /// The names of the parts that differ, are missing or came in addition; sorted, never empty unless
        /// neither request has a part.
        parts: Vec<String>,
        /// Nothing differs but spelling, under a policy for which spelling counts.
        formatting_only: bool,
    },
    /// The record has a scheme or a policy of a later release, so nobody here can tell. Neither replay nor
    /// run nor mismatch, whose advice may be a new key.
    Unknowable,
}

/// A fingerprint that cannot be made; the text says what to change in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprintError(String);

impl fmt::Display for FingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FingerprintError {}

/// What a record keeps of what was asked.
///
/// The order of the fields is the stored format. An unknown scheme or policy decodes; [`Fingerprint::judge`]
/// refuses to guess about it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    scheme: u16,
    policy: u8,
    /// Under the policy. Decides, together with `exact`.
    digest: [u8; 32],
    /// Where it is not `digest`.
    exact: Option<[u8; 32]>,
    /// Strictly ascending by name. The names decide what is compared; the prints only name what differs.
    parts: Few<Print>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Print {
    name: Text,
    exact: [u8; 8],
    /// Where the full canonical digest is not the exact one.
    canonical: Option<[u8; 8]>,
}

/// The policy as stored, without the names, which every record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Exact = 1,
    Canonical = 2,
    Parts = 3,
}

impl Fingerprint {
    /// The fingerprint of a new record. A name chosen twice counts once.
    ///
    /// # Errors
    /// If there is no part, a defect, or nothing chosen, and if a chosen part is not in the request.
    pub fn of(parts: &Parts, compare: Compare) -> Result<Self, FingerprintError> {
        let refuse = |why: &str| Err(FingerprintError(why.to_owned()));
        if let Some(defect) = parts.defect() {
            return refuse(defect);
        }
        if parts.is_empty() {
            return refuse(
                "the request names no part; name what makes it the same request, such as its body",
            );
        }
        let (policy, names) = match compare {
            Compare::Exact => (Policy::Exact, None),
            Compare::Canonical => (Policy::Canonical, None),
            Compare::Parts([]) => return refuse("no part is chosen for comparing; choose one at least"),
            Compare::Parts(names) => (Policy::Parts, Some(names)),
        };
        for &name in names.unwrap_or_default() {
            if name == RESERVED {
                return refuse(&format!("{RESERVED:?} is always compared; choose parts of the request only"));
            }
            if parts.get(name).is_none() {
                return refuse(&format!(
                    "the part {name:?} is chosen for comparing; the request must name it"
                ));
            }
        }
        let compared =
            |part: &&Part| part.name == RESERVED || names.is_none_or(|names| names.contains(&&*part.name));
        let exact = request_digest(parts.all().filter(compared), exact_of);
        let differs = parts.all().any(|part| part.digests.exact != part.digests.canonical);
        let canonical =
            if differs { request_digest(parts.all().filter(compared), canonical_of) } else { exact };
        let digest = if policy == Policy::Exact { exact } else { canonical };
        Ok(Self {
            scheme: SCHEME,
            policy: policy as u8,
            digest,
            exact: (exact != digest).then_some(exact),
            parts: match names {
                None => Few::of(parts.all().map(Print::of)),
                Some(_) => Few::of(parts.all().filter(compared).map(Print::of)),
            },
        })
    }

    /// What the codec asks of a fingerprint it has read.
    ///
    /// # Errors
    /// Says what is damaged. A scheme or policy of a later release is not: [`Fingerprint::judge`] tells it.
    pub fn check(&self) -> Result<(), String> {
        if self.scheme != SCHEME || self.policy().is_none() {
            return Ok(()); // A newer version's: what is right there nobody here can tell.
        }
        let parts = self.parts.as_slice();
        let sorted = parts.is_sorted_by(|a, b| a.name < b.name);
        if parts.is_empty() || parts.len() > PARTS_MAX + 1 || !sorted {
            return Err("the part names of its fingerprint are damaged".to_owned());
        }
        Ok(())
    }

    /// Compares a retry with the record, by the record's scheme, policy and part names.
    ///
    /// Parts with a defect are never the same. No allocation where the answer is `Same`.
    pub fn judge(&self, asked: &Parts) -> Match {
        let Some(policy) = self.policy().filter(|_| self.scheme == SCHEME) else {
            return Match::Unknowable;
        };
        if asked.defect().is_none() && self.agrees(asked, policy) {
            return Match::Same;
        }
        self.difference(asked, policy)
    }

    /// Scheme, policy and the digest under it. Two fingerprints of a known scheme that agree in these are of
    /// the same request: the digest covers the names of the compared parts.
    pub(crate) fn deciding(&self) -> (u16, u8, &[u8; 32]) {
        (self.scheme, self.policy, &self.digest)
    }

    /// The digest under the record's policy.
    #[cfg(test)]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Writes all of it into the bytes that the audit chain hashes.
    pub(crate) fn layout(&self, out: &mut Layout) {
        out.u16(self.scheme);
        out.u8(self.policy);
        out.bytes(&self.digest);
        out.bytes(self.exact.as_ref().map_or(&[], |exact| &exact[..]));
        out.u64(self.parts.as_slice().len() as u64);
        for print in self.parts.as_slice() {
            out.bytes(print.name.as_bytes());
            out.bytes(&print.exact);
            out.bytes(print.canonical.as_ref().map_or(&[], |canonical| &canonical[..]));
        }
    }

    fn policy(&self) -> Option<Policy> {
        [Policy::Exact, Policy::Canonical, Policy::Parts].into_iter().find(|&it| it as u8 == self.policy)
    }

    fn print(&self, name: &Text) -> Option<&Print> {
        let parts = self.parts.as_slice();
        parts.binary_search_by(|print| print.name.cmp(name)).ok().map(|at| &parts[at])
    }

    /// Whether this part of a retry is looked at. All are, but what a chosen list leaves out.
    fn compares(&self, part: &Part, policy: Policy) -> bool {
        policy != Policy::Parts || part.name == RESERVED || self.print(&part.name).is_some()
    }

    fn agrees(&self, asked: &Parts, policy: Policy) -> bool {
        let compared = || asked.all().filter(|part| self.compares(part, policy));
        // The same octets are the same request under each policy, even if the program now names their kind
        // otherwise and so has another canonical form of them.
        let same_octets = || request_digest(compared(), exact_of) == self.exact.unwrap_or(self.digest);
        let same_content = || request_digest(compared(), canonical_of) == self.digest;
        same_octets() || (policy != Policy::Exact && same_content())
    }

    /// Names what differs, by the prints. They decide nothing: if none differs, all parts are named.
    fn difference(&self, asked: &Parts, policy: Policy) -> Match {
        let mut names = BTreeSet::new();
        let mut formatting_only = policy == Policy::Exact && asked.defect().is_none();
        for print in self.parts.as_slice() {
            let part = asked.get(&print.name);
            let same_octets = part.is_some_and(|part| print.exact == head(&part.digests.exact));
            let same_content = part.is_some_and(|part| print.canonical() == head(&part.digests.canonical));
            formatting_only &= same_octets || same_content;
            if !same_octets && (policy == Policy::Exact || !same_content) {
                names.insert(&*print.name);
            }
        }
        for part in asked.all().filter(|part| self.compares(part, policy)) {
            if self.print(&part.name).is_none() {
                formatting_only = false;
                names.insert(&*part.name);
            }
        }
        if names.is_empty() {
            formatting_only = false;
            names.extend(self.parts.as_slice().iter().map(|print| &*print.name));
        }
        Match::Differs { parts: names.into_iter().map(str::to_owned).collect(), formatting_only }
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.parts.as_slice().iter().map(|print| &*print.name).collect();
        f.debug_struct("Fingerprint")
            .field("scheme", &self.scheme)
            .field("policy", &self.policy)
            .field("names", &names)
            .finish_non_exhaustive()
    }
}

impl Print {
    fn of(part: &Part) -> Self {
        let Digests { exact, canonical } = part.digests;
        Self {
            name: part.name.clone(),
            exact: head(&exact),
            canonical: (canonical != exact).then(|| head(&canonical)),
        }
    }

    fn canonical(&self) -> [u8; 8] {
        self.canonical.unwrap_or(self.exact)
    }
}

fn exact_of(part: &Part) -> &[u8; 32] {
    &part.digests.exact
}

fn canonical_of(part: &Part) -> &[u8; 32] {
    &part.digests.canonical
}

/// Over parts in the order of their names. The iterator is walked twice, since the count comes first.
fn request_digest<'p>(
    parts: impl Iterator<Item = &'p Part> + Clone,
    digest: impl Fn(&Part) -> &[u8; 32],
) -> [u8; 32] {
    let mut hasher = Sha256::new().chain_update(REQUEST_DOMAIN).chain_update(n64(parts.clone().count()));
    for part in parts {
        framed(&mut hasher, part.name.as_bytes());
        hasher.update(digest(part));
    }
    hasher.finalize().into()
}

fn head(digest: &[u8; 32]) -> [u8; 8] {
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests;
