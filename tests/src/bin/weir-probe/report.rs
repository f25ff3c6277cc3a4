//! Runs every route and judges what it found.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde::Serialize;

use crate::exports;
use crate::routes::{Mode, Promise, ROUTES};
use crate::scene::Scene;

/// The program that is linked to the driver, and the interposer that stands before or behind.
const LINKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/linked"));
const NEXT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/next.so"));

/// All routes, judged.
#[derive(Serialize)]
pub struct Report {
    /// How our library comes into this process; absent: not at all, or not so that it could be seen.
    pub mode: Option<Mode>,
    /// The libraries by which a route is caught.
    pub ours: Vec<PathBuf>,
    /// The driver's file; absent: there is none, and no route could be tried.
    pub driver: Option<PathBuf>,
    /// Functions that the driver exports and our list lacks; absent: the driver's file cannot be read.
    pub unlisted: Option<Vec<String>>,
    /// The routes.
    pub routes: Vec<Judged>,
}

/// One route, judged.
#[derive(Serialize)]
pub struct Judged {
    /// Its name.
    pub route: &'static str,
    /// Whether all addresses lie in a library of ours, or none was found; absent: it could not be tried.
    pub caught: Option<bool>,
    /// What this mode promises.
    pub expected: bool,
    /// What each mode promises.
    pub promise: Promise,
    /// Why.
    pub note: String,
}

impl Report {
    /// Tries every route.
    pub fn take() -> Self {
        let scene = Scene::look();
        let routes = match (&scene.named, Kit::unpack()) {
            (Ok(_), Ok(kit)) => ROUTES.iter().map(|row| scene.judge(row, &kit)).collect(),
            (Err(why), _) => ROUTES.iter().map(|row| scene.untried(row, why)).collect(),
            (_, Err(why)) => ROUTES.iter().map(|row| scene.untried(row, &why.to_string())).collect(),
        };
        let unlisted = scene.driver.as_deref().and_then(|file| exports::unlisted(file).ok());
        Self { mode: scene.mode, ours: scene.ours, driver: scene.driver, unlisted, routes }
    }

    /// Whether every route did as promised. Without us nothing is promised.
    pub fn holds(&self) -> bool {
        self.mode.is_none() || self.routes.iter().all(|route| route.caught == Some(route.expected))
    }

    /// One JSON document.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// A table for people.
    pub fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        for route in &self.routes {
            let caught = match route.caught {
                Some(true) => "caught",
                Some(false) => "missed",
                None => "not tried",
            };
            let line = format!("{:<30} {caught:<10} {}", route.route, route.note);
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Files that some routes need, as long as this lives.
pub struct Kit {
    directory: tempfile::TempDir,
}

impl Kit {
    /// Writes them.
    pub fn unpack() -> io::Result<Self> {
        let kit = Self { directory: tempfile::tempdir()? };
        std::fs::write(kit.next(), NEXT)?;
        std::fs::write(kit.linked(), LINKED)?;
        std::fs::set_permissions(kit.linked(), std::fs::Permissions::from_mode(0o700))?;
        Ok(kit)
    }

    /// The interposer.
    pub fn next(&self) -> PathBuf {
        self.directory.path().join("next.so")
    }

    /// The linked program.
    pub fn linked(&self) -> PathBuf {
        self.directory.path().join("linked")
    }
}
