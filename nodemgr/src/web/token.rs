//! The token that whoever asks for more than metrics must show.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::codes;
use crate::fault::Fault;

/// Shortest token, in bytes: what can be guessed guards nothing.
const SHORTEST: usize = 16;

/// Longest that is read.
const LONGEST: usize = 1024;

/// A secret; it is never printed.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The first line of the file.
    ///
    /// # Errors
    /// [`codes::TOKEN`]: the file cannot be read, others can read it, or what stands in it is no token.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let shown = path.display();
        let refuse = |what: String, help: &str| Fault::new(&codes::TOKEN, format!("`{shown}` {what}"), help);
        let make = format!("make one: (umask 077; head -c 32 /dev/urandom | base64 > {shown})");
        let meta =
            std::fs::metadata(path).map_err(|error| refuse(format!("cannot be read: {error}"), &make))?;
        if meta.mode() & 0o077 != 0 {
            let help = "use a file that is for this alone, and that only its owner can read (chmod 600)";
            return Err(refuse("can be read by others".into(), help));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| refuse(format!("cannot be read: {error}"), &make))?;
        let line = text.lines().next().unwrap_or_default().trim();
        let plain = line.bytes().all(|c| c.is_ascii_graphic());
        if !plain || !(SHORTEST..=LONGEST).contains(&line.len()) {
            let what =
                format!("has no token of {SHORTEST} to {LONGEST} printable characters in its first line");
            return Err(refuse(what, &make));
        }
        Ok(Self(line.to_owned()))
    }

    /// Whether the value of an `Authorization` header shows it. Takes as long for a nearly right one as for any other of its
    /// length.
    pub fn is_shown_by(&self, header: &[u8]) -> bool {
        let Some(shown) = header.strip_prefix(b"Bearer ") else { return false };
        let own = self.0.as_bytes();
        let differing = own.iter().zip(shown).fold(0u8, |all, (own, shown)| all | (own ^ shown));
        own.len() == shown.len() && differing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_counts() {
        let token = Token("0123456789abcdef".into());
        assert!(token.is_shown_by(b"Bearer 0123456789abcdef"));
        for wrong in [
            &b"Bearer 0123456789abcdeF"[..],
            b"Bearer 0123456789abcde",
            b"Bearer 0123456789abcdef0",
            b"Bearer ",
            b"0123456789abcdef",
            b"",
            b"Basic 0123456789abcdef",
        ] {
            assert!(!token.is_shown_by(wrong), "{wrong:?}");
        }
    }
}
