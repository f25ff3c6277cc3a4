//! What people hear from us: one line on stderr, once for each thing there is to say.

use std::sync::atomic::{AtomicBool, Ordering};

/// Something that is said at most once in the life of a process.
pub struct Once(AtomicBool);

impl Once {
    /// Not said yet.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Writes `weir: ` and the message to stderr, the first time. Never fails, never raises SIGPIPE's cousin
    /// EPIPE to anyone: what cannot be written is lost.
    pub fn say(&self, message: impl FnOnce() -> String) {
        // Relaxed: only which of two threads speaks hangs on it.
        if self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let line = format!("weir: {}\n", message());
        let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    }
}
