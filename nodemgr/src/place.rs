//! Where things lie: one base directory with the lock, the control socket and a directory per tenant.
//!
//! ```text
//!   <base>/node.lock               held by the running node manager, holds its pid
//!   <base>/node.journal            what a manager that starts after this one must know
//!   <base>/control.sock            JSON lines
//!   <base>/off                     there while the operator has switched Weir off
//!   <base>/tenants/<name>/tenant.sock   where the tenant's processes register; the directory is what a container
//!                                       would be given
//!   <base>/tenants/<name>/launch        what they keep to while nobody listens there
//! ```

use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::codes;
use crate::fault::Fault;

/// Longest path of a Unix socket, in bytes (`sun_path` less the final zero).
pub const MAX_SOCKET_PATH: usize = 107;

/// The file in a tenant's directory that tells its processes what to do without a manager: not to use the GPU.
pub const STRICT_MARK: &str = "strict";

/// Longest name of a tenant, in bytes: leaves room for the base directory in a socket's path.
pub const MAX_NAME: usize = 40;

/// The base directory and what lies in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    base: PathBuf,
}

/// This process's effective user.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Place {
    /// The base directory if none is named: `$WEIR_NODE_DIR`, else `/run/weir` for root, else below
    /// `$XDG_RUNTIME_DIR`, else in `/tmp`.
    pub fn standard() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = match (own_uid(), set("WEIR_NODE_DIR"), set("XDG_RUNTIME_DIR")) {
            (_, Some(base), _) => base,
            (0, None, _) => PathBuf::from("/run/weir"),
            (_, None, Some(runtime)) => runtime.join("weir"),
            (uid, None, None) => PathBuf::from(format!("/tmp/weir-{uid}")),
        };
        Self { base }
    }

    /// `base`, if it can serve.
    ///
    /// # Errors
    /// A relative path, or one too long for the sockets below it.
    pub fn at(base: &Path) -> Result<Self, Fault> {
        let place = Self { base: base.to_path_buf() };
        let shown = base.display();
        if !base.is_absolute() {
            let message = format!("`{shown}` is a relative path");
            return Err(Fault::new(&codes::PLACE, message, "give an absolute path, such as /run/weir"));
        }
        let longest =
            place.tenant_dir(&"n".repeat(MAX_NAME)).join("tenant.sock").as_os_str().as_bytes().len();
        if longest > MAX_SOCKET_PATH {
            let room = MAX_SOCKET_PATH - (longest - base.as_os_str().as_bytes().len());
            let message = format!("`{shown}` is too long: a socket path has at most {MAX_SOCKET_PATH} bytes");
            return Err(Fault::new(
                &codes::PLACE,
                message,
                format!("choose a directory of at most {room} bytes"),
            ));
        }
        Ok(place)
    }

    /// The base directory itself.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The lock file.
    pub fn lock(&self) -> PathBuf {
        self.base.join("node.lock")
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.base.join("node.journal")
    }

    /// The control socket.
    pub fn control(&self) -> PathBuf {
        self.base.join("control.sock")
    }

    /// The mark of a node that is switched off.
    pub fn off_mark(&self) -> PathBuf {
        self.base.join("off")
    }

    /// Sets the mark, or removes it; as it is to be already, it stays.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn mark_off(&self, off: bool) -> std::io::Result<()> {
        if off {
            return fs::File::create(self.off_mark())?.sync_all();
        }
        fs::remove_file(self.off_mark()).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
    }

    /// The directory of one tenant.
    pub fn tenant_dir(&self, name: &str) -> PathBuf {
        self.base.join("tenants").join(name)
    }

    /// Makes the base directory, and checks that nobody else could put something of his in its place.
    ///
    /// # Errors
    /// The directory cannot be made, belongs to somebody else, or others may write to it.
    pub fn prepare(&self) -> Result<(), Fault> {
        let shown = self.base.display();
        // Others must reach the sockets of a root daemon; nobody needs to reach those of a user's.
        let mode = if own_uid() == 0 { 0o755 } else { 0o700 };
        let make = |path: &Path| DirBuilder::new().recursive(true).mode(mode).create(path);
        let help = "name another directory with --dir";
        make(&self.base).map_err(|e| Fault::system(&codes::PLACE, format!("make `{shown}`"), e, help))?;
        let meta = fs::metadata(&self.base)
            .map_err(|e| Fault::system(&codes::PLACE, format!("look at `{shown}`"), e, help))?;
        if meta.uid() != own_uid() {
            let message = format!("`{shown}` belongs to user {}, not to {}", meta.uid(), own_uid());
            return Err(Fault::new(&codes::PLACE, message, help));
        }
        if let Some(kind) = rustix::fs::statfs(&self.base).ok().and_then(|fs| network_file_system(fs.f_type))
        {
            let message =
                format!("`{shown}` lies on {kind}, where sockets and locks do not work between processes");
            return Err(Fault::new(
                &codes::PLACE,
                message,
                "name a local directory with --dir, such as /run/weir",
            ));
        }
        if meta.permissions().mode() & 0o022 != 0 {
            let message = format!("others may write to `{shown}`, so they could replace its sockets");
            return Err(Fault::new(&codes::PLACE, message, format!("chmod go-w {shown}")));
        }
        make(&self.base.join("tenants"))
            .map_err(|e| Fault::system(&codes::PLACE, format!("make `{shown}/tenants`"), e, help))
    }
}

/// The kind of a network file system, by the number that `statfs` gives it (linux/magic.h and the file systems' own
/// sources); `None` for every other.
fn network_file_system(magic: rustix::fs::FsWord) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Some("an SMB share"),
        0x5346_414F => Some("AFS"),
        0x00C3_6400 => Some("Ceph"),
        0x0BD0_0BD0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        _ => None,
    }
}

/// Whether `name` can be a tenant's name.
///
/// # Errors
/// [`codes::NAME`].
pub fn check_name(name: &str) -> Result<(), Fault> {
    let first = name.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric());
    let rest = name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-'));
    if first && rest && name.len() <= MAX_NAME {
        return Ok(());
    }
    let message = format!("`{}` cannot be a tenant's name", name.escape_debug());
    let help = format!("use 1 to {MAX_NAME} letters, digits, `.`, `_`, `-`, starting with a letter or digit");
    Err(Fault::new(&codes::NAME, message, help))
}

/// The name of a tenant that was given none: the program's base name, with what a name cannot have left out.
pub fn name_of_program(program: &str) -> String {
    let base = program.rsplit('/').next().unwrap_or(program);
    let kept = base.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    let name: String = kept.skip_while(|c| !c.is_ascii_alphanumeric()).take(MAX_NAME - 4).collect();
    if name.is_empty() { "program".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_no_place_for_sockets() {
        assert_eq!(network_file_system(0x6969), Some("NFS"));
        assert_eq!(network_file_system(0xFF53_4D42), Some("an SMB share"));
        let here = rustix::fs::statfs(std::env::temp_dir().as_path()).unwrap();
        assert_eq!(network_file_system(here.f_type), None, "the tests themselves run on a local one");
    }
}
