//! Where the build lies as it would be installed: `dist/`, or `$WEIR_DIST`.

use std::path::{Path, PathBuf};

/// The laid-out build.
#[derive(Clone, Debug)]
pub struct Dist(PathBuf);

/// The directory that holds this package's directory.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

impl Dist {
    /// Finds it.
    ///
    /// # Panics
    /// If nothing was laid out.
    pub fn find() -> Self {
        let root = std::env::var_os("WEIR_DIST").map_or_else(|| workspace().join("dist"), PathBuf::from);
        let dist = Self(root);
        let needed = [dist.weir(), dist.preload(), dist.simgpu().join("libcuda.so.1")];
        if let Some(missing) = needed.iter().find(|file| !file.exists()) {
            panic!(
                "there is no `{}`\nhelp: run scripts/build first, or name its output in WEIR_DIST",
                missing.display()
            );
        }
        dist
    }

    /// The command.
    pub fn weir(&self) -> PathBuf {
        self.0.join("bin/weir")
    }

    /// The command with faults of its own on demand.
    pub fn failing_weir(&self) -> PathBuf {
        self.0.join("test/weir-failpoints")
    }

    /// The command of the cluster.
    pub fn cluster(&self) -> PathBuf {
        self.0.join("bin/weir-cluster")
    }

    /// The benchmarks.
    pub fn bench(&self) -> PathBuf {
        self.0.join("bin/weir-bench")
    }

    /// Where all of it lies.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// The probe of look-up routes.
    pub fn probe(&self) -> PathBuf {
        self.0.join("bin/weir-probe")
    }

    /// The library that is preloaded.
    pub fn preload(&self) -> PathBuf {
        self.0.join("lib/weir/libweir.so")
    }

    /// The directory with the same library in the driver's place, a `libcuda.so.1`.
    pub fn proxy(&self) -> PathBuf {
        self.0.join("lib/weir/proxy")
    }

    /// The same library with faults of its own on demand (`WEIR_FAILPOINT`).
    pub fn failpoints(&self) -> PathBuf {
        self.0.join("test/libweir-failpoints.so")
    }

    /// The directory with the simulated GPU's libraries and broker.
    pub fn simgpu(&self) -> PathBuf {
        self.0.join("simgpu")
    }
}

/// The Python that has the real clients: `.venv`, or `$WEIR_PYTHON`.
///
/// # Panics
/// If it is not there.
pub fn python() -> PathBuf {
    let named = std::env::var_os("WEIR_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| workspace().join(".venv/bin/python"));
    assert!(python.exists(), "there is no `{}`\nhelp: run scripts/setup first", python.display());
    python
}

/// One of the small Python programs in `tests/clients`.
pub fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}
