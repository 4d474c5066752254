//! The file of the keys of all connections, in the format that Wireshark reads (`SSLKEYLOGFILE`).
//! Only the owner can read the file. Agents on one host may append to one file: each line is one
//! write.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use openssl::ssl::SslContextBuilder;

use super::TlsError;

/// Mode of the file: only the owner reads and writes.
const MODE: u32 = 0o600;
const MODE_MASK: u32 = 0o777;

/// Lets OpenSSL write the keys of all connections to a file.
///
/// # Errors
/// The file cannot be opened, or has another mode.
pub fn begin(builder: &mut SslContextBuilder, path: &Path) -> Result<(), TlsError> {
    let read = |error| TlsError::Read { path: path.into(), error };
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(read)?;
    let metadata = file.metadata().map_err(read)?;
    let mode = metadata.mode() & MODE_MASK;
    if !metadata.is_file() || mode != MODE {
        let kind = if metadata.is_file() { "a file" } else { "no regular file" };
        let found = format!("{kind} with mode {mode:04o}");
        return Err(TlsError::KeyLog { path: path.into(), found });
    }
    let has_failed = AtomicBool::new(false);
    let path = path.to_owned();
    builder.set_keylog_callback(move |_, line| {
        if let Err(error) = (&file).write_all(format!("{line}\n").as_bytes())
            && !has_failed.swap(true, Ordering::Relaxed)
        {
            // Nothing is left to be done if stderr is gone.
            let _ = writeln!(io::stderr(), "{}: keys are missing: {error}", path.display());
        }
    });
    Ok(())
}
