//! The nouns that places carry about and do not look into.

#![allow(dead_code, reason = "some are only made")]

pub(crate) mod decide {
    pub(crate) struct Asked {
        pub digest: super::name::ScopeDigest,
        pub fingerprint: super::fingerprint::Fingerprint,
        pub parts: u8,
    }
}

pub(crate) mod error {
    pub(crate) struct Error;
}

pub(crate) mod fingerprint {
    pub(crate) struct Fingerprint(pub u8);

    pub(crate) enum Match {
        Same,
        Unknowable,
        Differs { parts: Vec<String>, formatting_only: bool },
    }

    impl Fingerprint {
        pub fn judge(&self, parts: &u8) -> Match {
            match self.0 == *parts {
                true => Match::Same,
                false => Match::Differs { parts: Vec::new(), formatting_only: false },
            }
        }
    }
}

pub(crate) mod name {
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct ScopeDigest(pub [u8; 16]);

    #[derive(Clone, PartialEq, Eq, Hash)]
    pub(crate) struct Tenant;
}

pub(crate) mod outcome {
    #[derive(Clone, PartialEq, Eq, Hash)]
    pub(crate) struct ResourceRef;
}

pub(crate) mod policy {
    use std::time::Duration;

    #[derive(PartialEq, Eq)]
    pub(crate) enum WhileRunning {
        Judge,
        InProgressFirst,
    }

    pub(crate) struct Policy {
        pub execute_max: Duration,
        pub while_running: WhileRunning,
    }
}

pub(crate) mod record {
    pub(crate) struct Record;
}

pub(crate) mod reply {
    use std::time::Duration;

    use super::time::Timestamp;

    pub(crate) enum Reply {
        InProgress { since: Timestamp, retry_after: Duration, attempt: u32, owner: String },
        Mismatch { parts: Vec<String>, formatting_only: bool, in_flight: bool },
    }

    pub(crate) enum Status {
        Processing { since: Timestamp, lease_left: Duration, owner: String },
    }

    pub(crate) fn retry_within(left: Duration) -> Duration {
        left.clamp(Duration::from_millis(1), Duration::from_secs(1))
    }
}

pub(crate) mod time {
    #[derive(Clone, Copy)]
    pub(crate) struct Timestamp(pub u64);
}
