//! Log lines of the broker and its crates, on stderr. It knows nothing but level and text.

use std::io::Write;

use log::{LevelFilter, Log, Metadata, Record};

/// Sends everything up to `level` to stderr, from now on.
pub fn install(level: LevelFilter) {
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        let (level, target, text) = (record.level(), record.target(), record.args());
        // A closed stderr must not end the broker.
        let _ = writeln!(std::io::stderr().lock(), "{level} {target}: {text}");
    }

    fn flush(&self) {}
}
