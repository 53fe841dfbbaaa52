//! refused: E0004

use onecho::Reply;

fn status(reply: Reply) -> u16 {
    match reply {
        Reply::Done(finished) | Reply::Replay(finished) => finished.code,
        Reply::InProgress { .. } => 409,
        Reply::Mismatch { .. } => 422,
        Reply::Expired { .. } => 410,
        Reply::Duplicate { .. } => 303,
        Reply::Conflict { .. } => 409,
        Reply::Refused(_) => 503,
    }
}

fn main() {}
