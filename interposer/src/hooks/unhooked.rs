//! The functions that a budget depends on and that have no hook, each with its reason; and the document that shows
//! them beside the hooks (`docs/hooks.md`, rewritten by `WEIR_UPDATE=1 cargo test -p weir-interposer`).

/// Reason, and the symbols that it stands for.
const UNHOOKED: &[(&str, &[&str])] = &[
    (
        "CUDA 2's form for 32-bit addresses: a program for x86-64 has no use for it",
        &[
            "cuArray3DCreate",
            "cuArrayCreate",
            "cuDeviceTotalMem",
            "cuMemAlloc",
            "cuMemAllocPitch",
            "cuMemFree",
            "cuMemGetInfo",
            "cuMemcpy2D",
            "cuMemcpy2DAsync",
            "cuMemcpy2DUnaligned",
            "cuMemcpy3D",
            "cuMemcpy3DAsync",
            "cuMemcpyAtoA",
            "cuMemcpyAtoD",
            "cuMemcpyAtoH",
            "cuMemcpyAtoHAsync",
            "cuMemcpyDtoA",
            "cuMemcpyDtoD",
            "cuMemcpyDtoDAsync",
            "cuMemcpyDtoH",
            "cuMemcpyDtoHAsync",
            "cuMemcpyHtoA",
            "cuMemcpyHtoAAsync",
            "cuMemcpyHtoD",
            "cuMemcpyHtoDAsync",
            "cuMemsetD16",
            "cuMemsetD2D16",
            "cuMemsetD2D32",
            "cuMemsetD2D8",
            "cuMemsetD32",
            "cuMemsetD8",
        ],
    ),
    (
        "a description: what a graph allocates is charged when it is launched or uploaded",
        &["cuGraphAddMemAllocNode", "cuGraphAddMemFreeNode"],
    ),
    (
        "for Direct3D's command lists, which are not on Linux",
        &[
            "cuStreamBeginCaptureToCig",
            "cuStreamBeginCaptureToCig_ptsz",
            "cuStreamEndCaptureToCig",
            "cuStreamEndCaptureToCig_ptsz",
        ],
    ),
    (
        "makes nothing and switches nothing: a reference to a context that is known; its books close when it is destroyed, \
         or with the process",
        &["cuCtxAttach", "cuCtxFromGreenCtx"],
    ),
    ("a stream's context is asked of the driver at its first launch", &["cuGreenCtxStreamCreate"]),
    (
        "moves nothing: what the memory held is given up",
        &[
            "cuMemDiscardAndPrefetchBatchAsync",
            "cuMemDiscardAndPrefetchBatchAsync_ptsz",
            "cuMemDiscardBatchAsync",
            "cuMemDiscardBatchAsync_ptsz",
        ],
    ),
    ("its tables have neither names nor documentation: what they hold cannot be told", &["cuGetExportTable"]),
    (
        "a kernel found this way is asked for its name at its first launch",
        &[
            "cuKernelGetFunction",
            "cuLibraryEnumerateKernels",
            "cuLibraryGetUnifiedFunction",
            "cuModuleEnumerateFunctions",
        ],
    ),
    (
        "passes frames on that were allocated elsewhere, and charged there if CUDA did it; what the driver needs to move a frame to \
         another device is not seen",
        &[
            "cuEGLStreamConsumerAcquireFrame",
            "cuEGLStreamConsumerConnect",
            "cuEGLStreamConsumerConnectWithFlags",
            "cuEGLStreamConsumerDisconnect",
            "cuEGLStreamConsumerReleaseFrame",
            "cuEGLStreamProducerConnect",
            "cuEGLStreamProducerDisconnect",
            "cuEGLStreamProducerPresentFrame",
            "cuEGLStreamProducerReturnFrame",
        ],
    ),
    (
        "memory of OpenGL, EGL or VDPAU: allocated by calls of theirs, which are not the driver's, and only registered and mapped \
         here",
        &[
            "cuGLMapBufferObject",
            "cuGLMapBufferObjectAsync",
            "cuGLMapBufferObjectAsync_v2",
            "cuGLMapBufferObjectAsync_v2_ptsz",
            "cuGLMapBufferObject_v2",
            "cuGLMapBufferObject_v2_ptds",
            "cuGLRegisterBufferObject",
            "cuGLSetBufferObjectMapFlags",
            "cuGLUnmapBufferObject",
            "cuGLUnmapBufferObjectAsync",
            "cuGLUnregisterBufferObject",
            "cuGraphicsEGLRegisterImage",
            "cuGraphicsGLRegisterBuffer",
            "cuGraphicsGLRegisterImage",
            "cuGraphicsMapResources",
            "cuGraphicsMapResources_ptsz",
            "cuGraphicsResourceGetMappedEglFrame",
            "cuGraphicsResourceGetMappedMipmappedArray",
            "cuGraphicsResourceGetMappedPointer",
            "cuGraphicsResourceGetMappedPointer_v2",
            "cuGraphicsResourceSetMapFlags",
            "cuGraphicsResourceSetMapFlags_v2",
            "cuGraphicsSubResourceGetMappedArray",
            "cuGraphicsUnmapResources",
            "cuGraphicsUnmapResources_ptsz",
            "cuGraphicsUnregisterResource",
            "cuGraphicsVDPAURegisterOutputSurface",
            "cuGraphicsVDPAURegisterVideoSurface",
        ],
    ),
    (
        "a view of memory that is shown as shared from its import on",
        &["cuExternalMemoryGetMappedBuffer", "cuExternalMemoryGetMappedMipmappedArray"],
    ),
    (
        "an imported pool gives out no memory of its own: each of its pieces is noted where it is exported and imported",
        &["cuMemPoolExportToShareableHandle", "cuMemPoolImportFromShareableHandle"],
    ),
    (
        "memory that is charged until it is freed; what a descriptor of it keeps alive after that is not documented, and not \
         counted",
        &["cuMemGetHandleForAddressRange"],
    ),
    (
        "tells a figure, or numbers what is to be made: holds no memory",
        &[
            "cuLogicalEndpointGetLimits",
            "cuLogicalEndpointIdRelease",
            "cuLogicalEndpointIdReserve",
            "cuLogicalEndpointQuery",
            "cuMulticastGetGranularity",
        ],
    ),
    (
        "binds memory that was charged when it was allocated, until it is released; what an endpoint itself takes of a device, or \
         keeps alive after that, is not documented, and not counted",
        &[
            "cuLogicalEndpointAddDevice",
            "cuLogicalEndpointBindAddr",
            "cuLogicalEndpointBindMem",
            "cuLogicalEndpointCreate",
            "cuLogicalEndpointDestroy",
            "cuLogicalEndpointExport",
            "cuLogicalEndpointImport",
            "cuLogicalEndpointUnbind",
        ],
    ),
];

use std::collections::BTreeMap;
use std::fmt::Write;

use weir_abi::{Class, SYMBOLS, Symbol, index_of};

use crate::resolve::hook::Hooks;

/// The document.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hooks.md");

fn row(symbol: &str) -> Option<&'static Symbol> {
    SYMBOLS.get(index_of(symbol)?)
}

fn hooked() -> BTreeMap<&'static str, &'static str> {
    super::table::driver_hook_lines().collect()
}

#[test]
fn every_symbol_that_a_budget_depends_on_is_hooked_or_excepted_with_a_reason() {
    let hooked = hooked();
    let mut excepted = BTreeMap::new();
    for (reason, symbol) in UNHOOKED.iter().flat_map(|(reason, list)| list.iter().map(move |s| (reason, *s)))
    {
        assert!(row(symbol).is_some_and(|row| row.class.is_enforced()), "{symbol} needs no exception");
        assert!(!hooked.contains_key(symbol), "{symbol} has a hook");
        assert!(excepted.insert(symbol, reason).is_none(), "{symbol} is excepted twice");
    }
    let holes: Vec<_> = SYMBOLS
        .iter()
        .filter(|row| row.class.is_enforced())
        .filter(|row| !hooked.contains_key(row.name) && !excepted.contains_key(row.name))
        .map(|row| format!("{} ({:?})", row.name, row.class))
        .collect();
    assert!(holes.is_empty(), "neither hooked nor excepted in UNHOOKED: {holes:#?}");
}

#[test]
fn what_is_hooked_has_a_class_that_says_why() {
    let neutral: Vec<_> = hooked()
        .into_keys()
        .filter(|symbol| row(symbol).is_none_or(|row| row.class == Class::Neutral))
        .collect();
    assert!(neutral.is_empty(), "hooked, and yet neutral: {neutral:?}");
}

#[test]
fn the_document_lists_every_hook_and_every_exception() {
    let wanted = document();
    if std::env::var_os("WEIR_UPDATE").is_some() {
        assert!(std::fs::write(DOCUMENT, &wanted).is_ok(), "{DOCUMENT} cannot be written");
    }
    let have = std::fs::read_to_string(DOCUMENT).unwrap_or_default();
    assert!(
        have == wanted,
        "docs/hooks.md is stale\nhelp: WEIR_UPDATE=1 cargo test -p weir-interposer rewrites it"
    );
}

const HEAD: &str = "# Hooks

Which functions of the driver Weir stands in for, and which it does not, of all that the drivers of CUDA 12 and 13
export. Written by `WEIR_UPDATE=1 cargo test -p weir-interposer` and held against the code by the same test.

## Classes

Every exported function has a class (`interposer/abi/src/table.rs`). In the classes marked * a function without a hook
is a hole in a budget: it has a hook or stands below as an exception, or the test fails.

| class | functions | hooked | what it is |
| --- | --- | --- | --- |
";

fn document() -> String {
    let (hooked, mut text) = (hooked(), HEAD.to_owned());
    for (class, line) in Class::ALL {
        let of_class = || SYMBOLS.iter().filter(|row| row.class == *class);
        let with_hook = of_class().filter(|row| hooked.contains_key(row.name)).count();
        let mark = if class.is_enforced() { "*" } else { "" };
        let _ =
            writeln!(text, "| {class:?}{mark} | {} | {with_hook} | {} |", of_class().count(), line.trim());
    }
    text += "\n## Hooks of the driver\n\n| function | class | what its hook does |\n| --- | --- | --- |\n";
    for (symbol, line) in super::table::driver_hook_lines() {
        let class = row(symbol).map_or(Class::Neutral, |row| row.class);
        let _ = writeln!(text, "| `{symbol}` | {class:?} | {} |", line.trim());
    }
    text += "\nOf NVML: ";
    let mut nvml = Hooks::default();
    super::nvml::add_hooks(&mut nvml);
    let nvml = nvml.iter().map(|hook| format!("`{}`", hook.symbol.to_string_lossy()));
    text += &nvml.collect::<Vec<_>>().join(", ");
    text += " answer with the tenant's budget and use; what exists for \
             the whole card alone is not supported on a GPU of the tenant's.\n\n## Exceptions\n\n| functions | why they have no hook |\n| --- | --- |\n";
    for (reason, symbols) in UNHOOKED {
        let names: Vec<_> = symbols.iter().map(|symbol| format!("`{symbol}`")).collect();
        let _ = writeln!(text, "| {} | {reason} |", names.join(", "));
    }
    text
}
