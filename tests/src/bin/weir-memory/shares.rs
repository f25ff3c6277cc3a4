//! To come.

use crate::{Client, Done};

/// One command, if it is of this subject.
pub fn obey(
    _client: &mut Client,
    _command: &str,
    _n: impl Fn(usize) -> u64,
    _words: &[&str],
) -> Option<Done> {
    None
}
