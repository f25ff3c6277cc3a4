//! The small C programs of `tests/lives` and libraries of `tests/preloads`, compiled where a story wants them.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::compile;

/// A directory of compiled things, gone with this value.
pub struct Workshop(TempDir);

impl Default for Workshop {
    fn default() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }
}

impl Workshop {
    /// Where it is.
    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    /// A program of `tests/lives`.
    pub fn life(&self, name: &str) -> PathBuf {
        self.linked_life(name, &[])
    }

    /// The same with these libraries linked into it.
    pub fn linked_life(&self, name: &str, libraries: &[&str]) -> PathBuf {
        let header = format!("-I{}", sources("../interposer/include").display());
        let arguments = [&["-pthread", &header], libraries].concat();
        self.make(&arguments, &sources("lives").join(format!("{name}.c")), name)
    }

    /// A library of `tests/preloads`.
    pub fn preload(&self, name: &str) -> PathBuf {
        let source = sources("preloads").join(format!("{name}.c"));
        self.make(&["-shared", "-fPIC"], &source, &format!("{name}.so"))
    }

    /// A library of this C text, under this file name.
    ///
    /// # Panics
    /// If it does not compile.
    pub fn library(&self, name: &str, text: &str, arguments: &[&str]) -> PathBuf {
        let source = self.dir().join(format!("{name}.c"));
        std::fs::write(&source, text).expect("a file in it");
        self.make(&[&["-shared", "-fPIC"], arguments].concat(), &source, name)
    }

    fn make(&self, arguments: &[&str], source: &Path, name: &str) -> PathBuf {
        let out = self.dir().join(name);
        compile::c(arguments, source, &out);
        out
    }
}

fn sources(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind)
}
