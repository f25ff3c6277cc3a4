//! Launch files: what a tenant's programs keep to while there is no manager for them ([`weir_protocol::launch`]). Each lies in
//! its tenant's directory, which is the manager's to write, and says what the manager would leave the tenant without ticks.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::PoisonError;

use weir_protocol::launch::LAUNCH_FILE;

use crate::shared::Shared;

/// The file that becomes the launch file when it is whole.
const NEXT: &str = "launch.next";

/// Writes the tenant's launch file, as its budget is now. A tenant that has ended has none.
///
/// # Errors
/// Those of the file system; the file of before is there still.
pub fn write(shared: &Shared, tenant: u64) -> io::Result<()> {
    // Before the budget is looked at: of two who write at once the second has the younger one.
    let _one_by_one = shared.launching.lock().unwrap_or_else(PoisonError::into_inner);
    let launch = shared.registry().launch(tenant, shared.context_memory);
    let Some(launch) = launch else { return Ok(()) };
    put(&shared.place.tenant_dir(&launch.tenant), &launch.to_text())
}

/// The same where the budget holds whatever becomes of the file: that is said, and no more.
pub fn renew(shared: &Shared, tenant: u64) {
    if let Err(error) = write(shared, tenant) {
        let help = "look at the directory and its file system";
        tracing::warn!(%error, help, "a launch file cannot be written: without a node manager older limits would hold");
    }
}

/// By a rename: a program that reads it finds the one or the other.
fn put(dir: &Path, text: &str) -> io::Result<()> {
    let next = dir.join(NEXT);
    let mut file = File::create(&next)?;
    file.set_permissions(Permissions::from_mode(0o644))?; // the tenant's to read, whatever the manager's mask
    file.write_all(text.as_bytes())?;
    fs::rename(&next, dir.join(LAUNCH_FILE))
}
