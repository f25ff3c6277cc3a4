//! The table of routes. A new route is one function in `route` and one row here.

use std::path::Path;

use crate::route::{self, Found};
use crate::symbols::Symbol;

/// One way to the driver's functions.
pub struct Route {
    /// Its name, as people know the way.
    pub name: &'static str,
    /// Whether the preload promises to catch it.
    pub caught: bool,
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
    /// A function of ours that needs the driver's file.
    CallWithFile(fn(&Symbol, &Path) -> Found),
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
    Route { name, caught: true, note: "", by, world: World::Same }
}

/// Every route, in the order of the printed table.
pub const ROUTES: &[Route] = &[
    caught("linked (DT_NEEDED)", By::Loader),
    caught("dlsym(RTLD_DEFAULT)", By::Call(route::by_default)),
    caught("dlsym(handle)", By::Call(route::by_handle)),
    caught("dlsym(handle), RTLD_DEEPBIND", By::Call(route::by_deep_binding)),
    caught("dlsym(handle), dlmopen", By::Call(route::by_namespace)),
    Route {
        note: "the driver's symbols have no versions",
        ..caught("dlvsym(handle)", By::Call(route::by_version))
    },
    caught("dlsym(handle), renamed copy", By::CallWithFile(route::by_renamed_copy)),
    caught("cuGetProcAddress", By::Call(route::by_proc_address)),
    caught("cuGetProcAddress_v2", By::Call(route::by_proc_address_v2)),
    caught("cuGetProcAddress of itself", By::Call(route::by_itself)),
    Route { world: World::PreloadBefore, ..caught("RTLD_NEXT, preload before", By::Call(route::by_next)) },
    Route {
        caught: false,
        note: "by design: who stands behind asks for the driver, and must get it",
        world: World::PreloadBehind,
        ..caught("RTLD_NEXT, preload behind", By::Call(route::by_next))
    },
    Route {
        caught: false,
        note: "asks nobody; only a driver library of our own in its place would help",
        ..caught("ELF symbol table by hand", By::CallWithFile(route::by_symbol_table))
    },
    Route {
        caught: false,
        note: "the preload is an environment variable",
        world: World::Empty,
        ..caught("empty environment", By::CallWithFile(route::by_path))
    },
];
