//! A control group of a story's own (cgroup v2).

use std::fs;
use std::path::PathBuf;

use crate::wait;

/// Removed when dropped, once nobody is in it.
pub struct Group {
    dir: PathBuf,
}

impl Group {
    /// A new one, below the root; nothing where there is no hierarchy of version 2, or this user may not make any.
    pub fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut unified = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let place = fields.next()?;
            (fields.next() == Some("cgroup2")).then(|| PathBuf::from(place))
        });
        let dir = unified.next()?.join(format!("weir-story-{}", std::process::id()));
        fs::create_dir(&dir).ok().map(|()| Self { dir })
    }

    /// Its last name.
    pub fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Has a process in it.
    ///
    /// # Panics
    /// If the kernel refuses that.
    pub fn take(&self, pid: i32) {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string()).expect("whoever may make it may fill it");
    }

    /// Whether all who are in it stand still.
    pub fn is_frozen(&self) -> bool {
        fs::read_to_string(self.dir.join("cgroup.events")).is_ok_and(|events| events.contains("frozen 1"))
    }

    /// Has them stand still; [`Self::is_frozen`] says when they do.
    ///
    /// # Panics
    /// If the kernel refuses that.
    pub fn freeze(&self) {
        fs::write(self.dir.join("cgroup.freeze"), "1").expect("whoever may make it may freeze it");
    }

    /// Lets them go on.
    ///
    /// # Panics
    /// If the kernel refuses that.
    pub fn thaw(&self) {
        fs::write(self.dir.join("cgroup.freeze"), "0").expect("whoever may make it may thaw it");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            wait::until("the end of all who were in it", || fs::remove_dir(&self.dir).ok());
        }
    }
}
