//! Where in the file something stands, so that each mistake has its line.

use std::path::Path;

use toml::de::DeTable;

use crate::fault::Fault;
use crate::nearest::nearest;

/// A file's text.
pub(super) struct Lines<'a> {
    text: &'a str,
    path: &'a Path,
}

impl<'a> Lines<'a> {
    pub fn new(text: &'a str, path: &'a Path) -> Self {
        Self { text, path }
    }

    fn at(&self, byte: usize) -> u64 {
        1 + self.text.get(..byte).unwrap_or_default().matches('\n').count() as u64
    }

    /// A fault at the line of a top-level key.
    pub fn fault(&self, keys: &[&str], message: impl Into<String>, help: impl Into<String>) -> Fault {
        let table = DeTable::parse(self.text).ok();
        let found = keys.first().and_then(|key| {
            let (key, _) = table.as_ref()?.get_ref().get_key_value(*key)?;
            Some(self.at(key.span().start))
        });
        Fault::input(self.path.display(), found.unwrap_or(1), message, help)
    }

    /// A fault at the line of a key of the row `at` of a list; of the row itself where the key is not there.
    pub fn row(
        &self,
        list: &str,
        at: usize,
        key: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Fault {
        let line = DeTable::parse(self.text).ok().and_then(|table| {
            let rows = table.get_ref().get(list)?.get_ref().as_array()?.get(at)?;
            let row = rows.get_ref().as_table();
            let key = row.and_then(|row| row.get_key_value(key)).map(|(key, _)| key.span().start);
            Some(self.at(key.unwrap_or(rows.span().start)))
        });
        Fault::input(self.path.display(), line.unwrap_or(1), message, help)
    }

    /// What the reader of TOML says, with the nearest word where one is unknown.
    pub fn misunderstood(&self, error: &toml::de::Error) -> Fault {
        let message = error.message().lines().next().unwrap_or_default();
        let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
        let (message, help) = match unknown {
            Some((word, expected)) => {
                let words: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
                let near = nearest(word, words.iter().copied());
                let help = near.map_or_else(
                    || format!("choose from: {}", words.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                (format!("unknown key `{word}`"), help)
            }
            None => (message.to_owned(), "correct the line; docs/cluster.md has every key".into()),
        };
        let line = error.span().map_or(1, |span| self.at(span.start));
        Fault::input(self.path.display(), line, message, help)
    }
}
