//! What goes wrong between us and the file. Owns the translation from the storage engine's many errors to the
//! few that matter; must not know what the caller tells its user.

use std::fmt;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The file holds what nobody wrote.
    Damaged(String),
    /// The file holds what a newer version of the program wrote.
    Newer(String),
    /// The disk is full.
    Full(String),
    /// Reading or writing failed; the handle is of no use until it is opened again.
    Io(String),
    /// Somebody else has the file.
    Locked,
    /// Nothing is wrong with the file: what is to be written cannot be.
    Refused(String),
}

impl Fault {
    pub fn io(fault: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        match fault.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full(fault.to_string()),
            _ => Self::Io(fault.to_string()),
        }
    }

    /// Damage, and where.
    pub fn damaged(place: &str, what: &str) -> Self {
        Self::Damaged(format!("{place}: {what}"))
    }
}

/// Why stored bytes cannot be read, without the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Nobody wrote them.
    Damaged(String),
    /// A newer version of the program wrote them.
    Newer(String),
}

impl Unreadable {
    pub fn at(self, place: &str) -> Fault {
        match self {
            Self::Damaged(what) => Fault::damaged(place, &what),
            Self::Newer(what) => Fault::Newer(format!("{place}: {what}; a newer version wrote it")),
        }
    }
}

impl From<String> for Unreadable {
    fn from(what: String) -> Self {
        Self::Damaged(what)
    }
}

impl From<&str> for Unreadable {
    fn from(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(what)
            | Self::Newer(what)
            | Self::Full(what)
            | Self::Io(what)
            | Self::Refused(what) => f.write_str(what),
            Self::Locked => f.write_str("the file is locked by another"),
        }
    }
}

impl From<redb::StorageError> for Fault {
    fn from(fault: redb::StorageError) -> Self {
        match fault {
            redb::StorageError::Corrupted(what) => Self::Damaged(what),
            redb::StorageError::Io(fault) if fault.kind() == std::io::ErrorKind::InvalidData => {
                Self::Damaged(fault.to_string())
            }
            redb::StorageError::Io(fault) if fault.kind() == std::io::ErrorKind::UnexpectedEof => {
                Self::Damaged(format!("it ends too early ({fault})"))
            }
            redb::StorageError::Io(fault) => Self::io(&fault),
            redb::StorageError::ValueTooLarge(bytes) => Self::Refused(format!("{bytes} bytes are too many")),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<redb::TransactionError> for Fault {
    fn from(fault: redb::TransactionError) -> Self {
        match fault {
            redb::TransactionError::Storage(fault) => fault.into(),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<redb::TableError> for Fault {
    fn from(fault: redb::TableError) -> Self {
        match fault {
            redb::TableError::Storage(fault) => fault.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::CommitError> for Fault {
    fn from(fault: redb::CommitError) -> Self {
        match fault {
            redb::CommitError::Storage(fault) => fault.into(),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<redb::DatabaseError> for Fault {
    fn from(fault: redb::DatabaseError) -> Self {
        match fault {
            redb::DatabaseError::DatabaseAlreadyOpen | redb::DatabaseError::LockProtocolMismatch => {
                Self::Locked
            }
            redb::DatabaseError::Storage(fault) => fault.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}
