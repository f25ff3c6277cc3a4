//! Where in a TOML file something stands, so that each mistake has its line.

use std::path::Path;

use toml::de::DeTable;

use crate::fault::Fault;
use crate::nearest::nearest;

/// A file's text.
pub(crate) struct Lines<'a> {
    text: &'a str,
    path: &'a Path,
}

impl<'a> Lines<'a> {
    /// That of the file at `path`, which is for messages only.
    pub fn new(text: &'a str, path: &'a Path) -> Self {
        Self { text, path }
    }

    fn at(&self, byte: usize) -> u64 {
        1 + self.text.get(..byte).unwrap_or_default().matches('\n').count() as u64
    }

    /// A fault where this byte stands.
    pub fn wrong(&self, byte: usize, message: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault::input(self.path.display(), self.at(byte), message, help)
    }

    /// A fault at the line of a key, as deep as it is there.
    pub fn fault(&self, keys: &[&str], message: impl Into<String>, help: impl Into<String>) -> Fault {
        let table = DeTable::parse(self.text).ok();
        let (mut here, mut byte) = (table.as_ref().map(toml::Spanned::get_ref), 0);
        for key in keys {
            let Some((found, value)) = here.and_then(|table| table.get_key_value(*key)) else { break };
            byte = found.span().start;
            here = value.get_ref().as_table();
        }
        self.wrong(byte, message, help)
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
        let byte = DeTable::parse(self.text).ok().and_then(|table| {
            let rows = table.get_ref().get(list)?.get_ref().as_array()?.get(at)?;
            let row = rows.get_ref().as_table();
            let key = row.and_then(|row| row.get_key_value(key)).map(|(key, _)| key.span().start);
            Some(key.unwrap_or(rows.span().start))
        });
        self.wrong(byte.unwrap_or(0), message, help)
    }

    /// What the reader of TOML says of `what` ("the sites are"), with the nearest word where one is unknown; else `help`.
    pub fn misunderstood(&self, error: &toml::de::Error, what: &str, help: &str) -> Fault {
        let message = error.message().lines().next().unwrap_or_default();
        let unknown = [("unknown field `", "key"), ("unknown variant `", "word")]
            .into_iter()
            .find_map(|(begin, kind)| Some((kind, message.strip_prefix(begin)?.split_once('`')?)));
        let (shown, help) = match unknown {
            // Every other part between backticks is a word that could stand there.
            Some((kind, (word, expected))) => {
                let words: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
                let help = nearest(word, words.iter().copied()).map_or_else(
                    || format!("choose from: {}", words.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                (format!("unknown {kind} `{word}`"), help)
            }
            None => (message.to_owned(), help.to_owned()),
        };
        let byte = error.span().map_or(0, |span| span.start);
        self.wrong(byte, format!("{what} not understood: {shown}"), help)
    }
}
