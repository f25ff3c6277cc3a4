//! Runs every route and judges what it found.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::routes::{By, ROUTES, Route, World};
use crate::{exports, route};

/// The program that is linked to the driver, and the interposer that stands before or behind.
const LINKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/linked"));
const NEXT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/next.so"));

/// All routes, judged.
#[derive(Serialize)]
pub struct Report {
    /// The libraries in `LD_PRELOAD`.
    pub preload: Vec<PathBuf>,
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
    /// Whether all addresses lie in a preloaded library; absent: it could not be tried.
    pub caught: Option<bool>,
    /// What is promised.
    pub expected: bool,
    /// Why.
    pub note: String,
}

impl Report {
    /// Tries every route.
    pub fn take() -> Self {
        let preload: Vec<_> = std::env::var("LD_PRELOAD")
            .map(|list| list.split([':', ' ']).filter(|name| !name.is_empty()).map(PathBuf::from).collect())
            .unwrap_or_default();
        let driver = route::open(route::DRIVER, libc::RTLD_LOCAL).and_then(route::loaded);
        let driver = driver.map(|(_, file)| file);
        let routes = match (&driver, Kit::unpack()) {
            (Ok(driver), Ok(kit)) => ROUTES.iter().map(|row| judge(row, &kit, driver, &preload)).collect(),
            (Err(why), _) => ROUTES.iter().map(|row| untried(row, why)).collect(),
            (_, Err(why)) => ROUTES.iter().map(|row| untried(row, &why.to_string())).collect(),
        };
        let unlisted = driver.as_deref().ok().and_then(|file| exports::unlisted(file).ok());
        Self { preload, driver: driver.ok(), unlisted, routes }
    }

    /// Whether every route did as promised. Without a preload nothing is promised.
    pub fn holds(&self) -> bool {
        self.preload.is_empty() || self.routes.iter().all(|route| route.caught == Some(route.expected))
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

fn untried(route: &Route, why: &str) -> Judged {
    Judged { route: route.name, caught: None, expected: route.caught, note: why.into() }
}

/// Files that some routes need, as long as this lives.
struct Kit {
    directory: tempfile::TempDir,
}

impl Kit {
    fn unpack() -> io::Result<Self> {
        let kit = Self { directory: tempfile::tempdir()? };
        std::fs::write(kit.next(), NEXT)?;
        std::fs::write(kit.linked(), LINKED)?;
        std::fs::set_permissions(kit.linked(), std::fs::Permissions::from_mode(0o700))?;
        Ok(kit)
    }

    fn next(&self) -> PathBuf {
        self.directory.path().join("next.so")
    }

    fn linked(&self) -> PathBuf {
        self.directory.path().join("linked")
    }
}

fn judge(route: &Route, kit: &Kit, driver: &Path, preload: &[PathBuf]) -> Judged {
    let output = command(route, kit, driver, preload).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => return untried(route, &format!("the asking process ended with {}", output.status)),
        Err(error) => return untried(route, &error.to_string()),
    };
    let found: Vec<_> = output.lines().filter_map(|line| line.split_once(' ')).collect();
    if let Some((name, why)) = found.iter().find_map(|(name, file)| Some((name, file.strip_prefix("- ")?))) {
        return untried(route, &format!("{name}: {why}"));
    }
    let inside = |file: &str| preload.iter().any(|library| is_same_file(library, Path::new(file)));
    let caught = !found.is_empty() && found.iter().all(|(_, file)| inside(file));
    Judged { route: route.name, caught: Some(caught), expected: route.caught, note: route.note.into() }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The process that asks by this route.
fn command(route: &Route, kit: &Kit, driver: &Path, preload: &[PathBuf]) -> Command {
    let mut command = match route.by {
        By::Loader => Command::new(kit.linked()),
        By::Call(_) | By::CallWithFile(_) => {
            let mut command = Command::new("/proc/self/exe");
            command.args(["--ask", route.name, "--driver"]).arg(driver);
            command
        }
    };
    let mut libraries: Vec<_> = preload.to_vec();
    match route.world {
        World::Same => return command,
        World::Empty => {
            command.env_clear();
            return command;
        }
        World::PreloadBefore => libraries.insert(0, kit.next()),
        World::PreloadBehind => libraries.push(kit.next()),
    }
    let names: Vec<_> = libraries.iter().map(|library| library.as_os_str()).collect();
    command.env("LD_PRELOAD", names.join(&OsString::from(":")));
    command
}
