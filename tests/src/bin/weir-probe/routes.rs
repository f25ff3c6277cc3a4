//! The table of routes. A new route is one function in `route` and one row here.

use std::path::Path;

use serde::Serialize;

use crate::route::{self, Found};
use crate::symbols::Symbol;

/// How our code comes into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// `LD_PRELOAD`.
    Preload,
    /// A `libcuda.so.1` of ours in the driver's place.
    Proxy,
    /// `/etc/ld.so.preload`.
    LdSoPreload,
}

/// What each mode promises to catch.
#[derive(Clone, Copy, Serialize)]
pub struct Promise {
    preload: bool,
    proxy: bool,
    ld_so_preload: bool,
}

impl Promise {
    const ALL: Self = Self { preload: true, proxy: true, ld_so_preload: true };

    /// What one mode promises; without any, what a preload would.
    pub fn of(self, mode: Option<Mode>) -> bool {
        match mode {
            None | Some(Mode::Preload) => self.preload,
            Some(Mode::Proxy) => self.proxy,
            Some(Mode::LdSoPreload) => self.ld_so_preload,
        }
    }
}

/// One way to the driver's functions.
pub struct Route {
    /// Its name, as people know the way.
    pub name: &'static str,
    /// Who promises to catch it.
    pub promise: Promise,
    /// Why not, or what is special.
    pub note: &'static str,
    /// Who looks up.
    pub by: By,
    /// What the asking process is given.
    pub world: World,
}

/// Who looks up.
#[derive(Clone, Copy)]
pub enum By {
    /// The loader, for a program that is linked to the driver.
    Loader,
    /// A function of ours.
    Call(fn(&Symbol) -> Found),
    /// A function of ours that needs the path by which programs know the driver.
    CallWithFile(fn(&Symbol, &Path) -> Found),
    /// A function of ours that needs the real driver's file, whoever is in its place.
    CallWithDriver(fn(&Symbol, &Path) -> Found),
}

/// What the asking process is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// This process's environment.
    Same,
    /// Another interposer, preloaded before everything else.
    PreloadBefore,
    /// Another interposer, preloaded after everything else.
    PreloadBehind,
    /// Nothing.
    Empty,
}

const fn caught(name: &'static str, by: By) -> Route {
    Route { name, promise: Promise::ALL, note: "", by, world: World::Same }
}

/// Every route, in the order of the printed table.
pub const ROUTES: &[Route] = &[
    caught("linked (DT_NEEDED)", By::Loader),
    caught("dlsym(RTLD_DEFAULT)", By::Call(route::by_default)),
    caught("dlsym(handle)", By::Call(route::by_handle)),
    caught("dlsym(handle), RTLD_DEEPBIND", By::Call(route::by_deep_binding)),
    caught("dlsym(handle), dlmopen", By::Call(route::by_namespace)),
    Route {
        note: "the driver's symbols have no versions: who asks for one finds nothing, as without us",
        ..caught(route::BY_VERSION, By::Call(route::by_version))
    },
    caught("dlsym(handle), absolute path", By::CallWithFile(route::by_path)),
    Route {
        promise: Promise { proxy: false, ..Promise::ALL },
        note: "a library in the driver's place is not asked for another file",
        ..caught("dlsym(handle), renamed copy", By::CallWithDriver(route::by_renamed_copy))
    },
    caught("cuGetProcAddress", By::Call(route::by_proc_address)),
    caught("cuGetProcAddress_v2", By::Call(route::by_proc_address_v2)),
    caught("cuGetProcAddress of itself", By::Call(route::by_itself)),
    Route { world: World::PreloadBefore, ..caught("RTLD_NEXT, preload before", By::Call(route::by_next)) },
    Route {
        promise: Promise { preload: false, ..Promise::ALL },
        note: "who is preloaded behind us asks for the driver, and must get it",
        world: World::PreloadBehind,
        ..caught("RTLD_NEXT, preload behind", By::Call(route::by_next))
    },
    Route {
        promise: Promise { preload: false, ld_so_preload: false, ..Promise::ALL },
        note: "asks nobody: only a library in the driver's place is found so",
        ..caught("ELF symbol table by hand", By::CallWithFile(route::by_symbol_table))
    },
    Route {
        promise: Promise { preload: false, ..Promise::ALL },
        note: "the preload is an environment variable",
        world: World::Empty,
        ..caught("empty environment", By::CallWithFile(route::by_path))
    },
];
