//! Where `libweir.so` is, and whether a program has really loaded it. A program is never started without it: the
//! loader only prints a line when a preload is missing, and the program would run unlimited.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::codes;
use crate::fault::Fault;

/// The library's file name.
const NAME: &str = "libweir.so";

/// The library: as named, by `$WEIR_PRELOAD`, or beside this program.
///
/// # Errors
/// [`codes::PRELOAD`].
pub fn find(named: Option<&Path>) -> Result<PathBuf, Fault> {
    let named = named.map(Path::to_path_buf).or_else(|| std::env::var_os("WEIR_PRELOAD").map(PathBuf::from));
    let Some(path) = named.or_else(beside) else {
        return Err(refuse(format!("`{NAME}` is not beside `weir`, nor in ../lib/weir")));
    };
    let absolute = path.canonicalize().map_err(|error| refuse(format!("`{}`: {error}", path.display())))?;
    // The loader splits the variable at both, and there is no way to escape them.
    if absolute.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(refuse(format!("`{}` has a space or colon in its path", absolute.display())));
    }
    let mut magic = [0; 4];
    let read =
        std::fs::File::open(&absolute).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    match read {
        Ok(()) if &magic == b"\x7fELF" => Ok(absolute),
        Ok(()) => Err(refuse(format!("`{}` is no shared library", absolute.display()))),
        Err(error) => Err(refuse(format!("`{}`: {error}", absolute.display()))),
    }
}

fn refuse(what: String) -> Fault {
    let help = "install it, or name it with --preload or WEIR_PRELOAD";
    Fault::new(&codes::PRELOAD, format!("the budget cannot be enforced: {what}"), help)
}

fn beside() -> Option<PathBuf> {
    let dir = std::env::current_exe().ok()?.parent()?.to_path_buf();
    let places = [dir.join(NAME), dir.join("../lib/weir").join(NAME), dir.join("../lib").join(NAME)];
    places.into_iter().find(|path| path.exists())
}

/// `LD_PRELOAD` with the library in front of what was there.
pub fn variable(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    value
}

/// Whether the process has mapped the library; `None` if it cannot be seen.
pub fn is_mapped(pid: u32, library: &Path) -> Option<bool> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).ok().filter(|maps| !maps.is_empty())?;
    let wanted = library.as_os_str().as_bytes();
    Some(maps.split(|byte| *byte == b'\n').any(|line| line.ends_with(wanted)))
}
