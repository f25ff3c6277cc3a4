//! Reading and writing a profile: whole or not at all, with the line of every mistake.

use std::path::Path;

use serde::Deserialize;

use super::{PROFILE_VERSION, Profile};
use crate::fault::{CONFIG, Fault};
use crate::toml_lines::Lines;

/// Largest profile that is read, in bytes: a thousand probes are a tenth of it.
pub(super) const LARGEST: u64 = 1 << 20;

/// First lines of every file.
const HEAD: &str = "# What a tenant needs, as `weir-cluster profile` measured it. docs/profiling.md says what each key means.\n\n";

impl Profile {
    /// Reads a file.
    ///
    /// # Errors
    /// A fault with file and line, under [`CONFIG`].
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let whole = |what: String, help: &str| {
            Fault::new(format!("the profile `{}` {what}", path.display()), help).exit(CONFIG)
        };
        let failed = |error: std::io::Error| {
            let help = "name a profile that `weir-cluster profile --out FILE` has written";
            whole(format!("cannot be read: {error}"), help)
        };
        let length = std::fs::metadata(path).map_err(failed)?.len();
        if length > LARGEST {
            return Err(whole(
                format!("has {length} bytes"),
                "a profile has at most a MiB: is it another file?",
            ));
        }
        let bytes = std::fs::read(path).map_err(failed)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64;
            Fault::input(path.display(), line, "the profile is not UTF-8", "save it as UTF-8")
        })?;
        Self::parse(&text, path)
    }

    /// The profile in `text`; `path` is for messages only.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Fault> {
        if text.trim().is_empty() {
            let help = "write one with `weir-cluster profile --out FILE -- COMMAND`";
            return Err(Fault::input(path.display(), 1, "the profile is empty", help));
        }
        let lines = Lines::new(text, path);
        check_version(text, &lines)?;
        let profile: Self = toml::from_str(text).map_err(|error| {
            lines.misunderstood(&error, "the profile is", "correct the line, or profile the tenant again")
        })?;
        match profile.refusal() {
            None => Ok(profile),
            Some(wrong) => Err(lines.fault(wrong.keys, wrong.message, wrong.help)),
        }
    }

    /// The profile as a file has it.
    ///
    /// # Errors
    /// If it is none that [`Self::parse`] would take: nothing is written that cannot be read.
    pub fn to_text(&self) -> Result<String, Fault> {
        if let Some(wrong) = self.refusal() {
            return Err(Fault::new(wrong.message, wrong.help));
        }
        let body = toml::to_string(self).map_err(|error| {
            Fault::new(format!("the profile cannot be written: {error}"), "report this as a fault of Weir")
        })?;
        Ok(format!("{HEAD}{body}"))
    }

    /// Writes the file: whole, or not at all.
    ///
    /// # Errors
    /// As [`Self::to_text`], or if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Fault> {
        let text = self.to_text()?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
        written.map_err(|error| {
            let _ = std::fs::remove_file(&beside); // perhaps it was never there
            let message = format!("the profile cannot be written to `{}`: {error}", path.display());
            Fault::new(message, "name a file in a directory that you may write to, with --out")
        })
    }
}

/// A file of another version is told as such, whatever else is in it.
fn check_version(text: &str, lines: &Lines<'_>) -> Result<(), Fault> {
    #[derive(Deserialize)]
    struct Head {
        version: Option<toml::Spanned<i64>>,
    }
    let Ok(Head { version: Some(version) }) = toml::from_str(text) else { return Ok(()) };
    if *version.get_ref() == i64::from(PROFILE_VERSION) {
        return Ok(());
    }
    let message =
        format!("the profile has version {}, and this build reads {PROFILE_VERSION}", version.get_ref());
    let help = "profile the tenant again, or use the `weir-cluster` that wrote it";
    Err(lines.wrong(version.span().start, message, help))
}
