//! Whether a directory is on a RAM disk, where a sync costs nothing. The load program has this file, too.

use std::io;
use std::path::Path;

#[cfg(target_os = "linux")]
pub fn is_ram(path: &Path) -> io::Result<bool> {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58F6;
    let kind = rustix::fs::statfs(path)?.f_type;
    Ok([TMPFS, RAMFS].contains(&kind))
}

/// Elsewhere nothing tells; the README says so.
#[cfg(not(target_os = "linux"))]
pub fn is_ram(_path: &Path) -> io::Result<bool> {
    Ok(false)
}
