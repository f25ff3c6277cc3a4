//! What this process finds itself in: how our library came, what the driver is; and a look-up within it.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::report::{Judged, Kit};
use crate::route::{self, Missed};
use crate::routes::{By, Mode, Route, World};

/// Where the loader reads what it preloads into every program.
const LD_SO_PRELOAD: &str = "/etc/ld.so.preload";

/// How our library came, and what there is.
pub struct Scene {
    /// How our library came; the first of these that holds.
    pub mode: Option<Mode>,
    /// The libraries by which a route is caught.
    pub ours: Vec<PathBuf>,
    /// What programs that ask for the driver get.
    pub named: Result<PathBuf, Missed>,
    /// The real driver.
    pub driver: Option<PathBuf>,
    preload: Vec<PathBuf>,
}

impl Scene {
    /// Looks.
    pub fn look() -> Self {
        let variable = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let (preload, system) =
            (list(variable.as_bytes()), list(&std::fs::read(LD_SO_PRELOAD).unwrap_or_default()));
        let handle = route::open(route::DRIVER, libc::RTLD_LOCAL);
        let stands_before = handle.as_ref().ok().and_then(|handle| stands_before(*handle));
        let named = handle.and_then(route::loaded).map(|(_, file)| file);
        let in_its_place = stands_before.is_some();
        let driver = stands_before.flatten().or_else(|| named.clone().ok().filter(|_| !in_its_place));
        let (mode, ours) = if !preload.is_empty() {
            (Some(Mode::Preload), preload.clone())
        } else if !system.is_empty() {
            (Some(Mode::LdSoPreload), system)
        } else if in_its_place {
            (Some(Mode::Proxy), named.iter().cloned().collect())
        } else {
            (None, Vec::new())
        };
        Self { mode, ours, named, driver, preload }
    }

    /// A route that could not be tried.
    pub fn untried(&self, route: &Route, why: &str) -> Judged {
        let expected = route.promise.of(self.mode);
        Judged { route: route.name, caught: None, expected, promise: route.promise, note: why.into() }
    }

    /// Tries one route.
    pub fn judge(&self, route: &Route, kit: &Kit) -> Judged {
        let output = self.command(route, kit).stdin(Stdio::null()).stderr(Stdio::null()).output();
        let output = match output {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            Ok(output) => {
                return self.untried(route, &format!("the asking process ended with {}", output.status));
            }
            Err(error) => return self.untried(route, &error.to_string()),
        };
        let found: Vec<_> = output.lines().filter_map(|line| line.split_once(' ')).collect();
        let missing = found.iter().find_map(|(name, file)| Some((name, file.strip_prefix("- ")?)));
        let leads_nowhere = route.name == route::BY_VERSION && missing.is_some();
        if let Some((name, why)) = missing.filter(|_| !leads_nowhere) {
            return self.untried(route, &format!("{name}: {why}"));
        }
        let inside = |file: &str| self.ours.iter().any(|library| is_same_file(library, Path::new(file)));
        let caught = leads_nowhere || !found.is_empty() && found.iter().all(|(_, file)| inside(file));
        let expected = route.promise.of(self.mode);
        Judged {
            route: route.name,
            caught: Some(caught),
            expected,
            promise: route.promise,
            note: route.note.into(),
        }
    }

    /// The process that asks by this route.
    fn command(&self, route: &Route, kit: &Kit) -> Command {
        let file = match route.by {
            By::CallWithDriver(_) => self.driver.as_deref(),
            _ => self.named.as_deref().ok(),
        };
        let mut command = match route.by {
            By::Loader => Command::new(kit.linked()),
            _ => {
                let mut command = Command::new("/proc/self/exe");
                command.args(["--ask", route.name, "--driver"]).arg(file.unwrap_or(Path::new("")));
                command
            }
        };
        let mut libraries = self.preload.clone();
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
}

/// Library names as the loader separates them.
fn list(names: &[u8]) -> Vec<PathBuf> {
    let names = names.split(|byte| matches!(byte, b':' | b' ' | b'\n' | b'\t'));
    names.filter(|name| !name.is_empty()).map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
}

/// If the library is ours, in the driver's place: the driver that it stands before, if it has found one.
fn stands_before(handle: *mut libc::c_void) -> Option<Option<PathBuf>> {
    type Proxy = extern "C" fn() -> *const c_char;
    let address = route::dlsym(handle, c"weirProxy").ok()?;
    // SAFETY: only our library exports this name, with this type.
    let path = unsafe { std::mem::transmute::<*const libc::c_void, Proxy>(address) }();
    if path.is_null() {
        return Some(None);
    }
    // SAFETY: a C string of the loader's, which stays.
    let path = unsafe { CStr::from_ptr(path) };
    Some(Some(PathBuf::from(OsStr::from_bytes(path.to_bytes()))))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
