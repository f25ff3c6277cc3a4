//! A process that has found no manager, or none that it understands, and keeps the limits of its tenant's launch file by
//! itself: on pages of its own, of which nobody else knows. When a manager lets it in, the tenant's pages take their place.

use std::io::Read;
use std::path::Path;

use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::launch::{LAUNCH_FILE, LONGEST, Launch};
use weir_protocol::mapping::{MapError, Mapped};
use weir_protocol::message::{FailMode, Welcome};
use weir_protocol::pages::{Grant, Moved, ProcessSlot, ProcessState, UsagePage};

use super::attach::SOCKET;
use super::client::{Client, Papers};
use super::connection::Connection;
use super::gpu::{Gpu, TenantPages};

/// The process's slot on its own pages.
const SLOT: u32 = 0;

/// Reads the launch file of a tenant's directory; `None`: there is none.
///
/// # Errors
/// What is wrong with it.
pub fn read(place: &Path) -> Result<Option<Launch>, String> {
    let Ok(file) = std::fs::File::open(place.join(LAUNCH_FILE)) else { return Ok(None) };
    let mut text = String::new();
    let longest = LONGEST as u64;
    match file.take(longest + 1).read_to_string(&mut text) {
        Err(error) => Err(format!("its launch file cannot be read: {error}")),
        Ok(read) if read > LONGEST => Err("its launch file is too long".into()),
        Ok(_) => Launch::parse(&text).map(Some).map_err(|flaw| flaw.to_string()),
    }
}

/// What people hear of it.
pub fn told(launch: &Launch) -> String {
    format!(
        "keeps to limits of its own (degraded), {} % of the time and {}, and so does each other process of tenant `{}`, until \
         a node manager lets them in",
        f64::from(launch.grant.rate.as_ppm()) / 1e4,
        launch.grant.memory_limit,
        launch.tenant
    )
}

/// A client that keeps to these limits.
///
/// # Errors
/// The pages cannot be made.
pub fn client(place: &Path, launch: Launch) -> Result<Client, MapError> {
    let mut gpus = Vec::with_capacity(launch.gpus.len());
    for (index, granted) in launch.gpus.iter().enumerate() {
        let gpu = Gpu::new(index, granted, SLOT as usize, own_pages(&launch.grant)?);
        gpu.slot().state.store(ProcessState::Degraded as u32, std::sync::atomic::Ordering::Relaxed);
        gpus.push(gpu);
    }
    let welcome = Welcome {
        protocol: PROTOCOL_VERSION,
        tenant: launch.tenant,
        class: launch.class,
        mode: FailMode::Managed,
        slot: SLOT,
        gpus: launch.gpus,
        prices: Vec::new(), // what kernels cost is measured
        context_memory: launch.context_memory,
        oversubscribe: launch.oversubscribe,
        latency_metric: launch.latency_metric,
    };
    let connection = Connection::none(place.join(SOCKET));
    Ok(Client::new(welcome, gpus, Papers { connection, pages: Vec::new() }).on_its_own())
}

/// Under the names of a manager's: whoever looks at the process sees that it keeps limits.
fn own_pages(grant: &Grant) -> Result<TenantPages, MapError> {
    let pages = TenantPages {
        grant: Mapped::create("weir-grant")?.1,
        bucket: Mapped::create("weir-bucket")?.1,
        usage: Mapped::create("weir-usage")?.1,
        activity: Mapped::create("weir-activity")?.1,
    };
    pages.grant.init_own(grant);
    pages.bucket.init();
    pages.usage.init();
    pages.activity.init(u64::from(std::process::id()));
    Ok(pages)
}

/// The page of its own that a process has left, and what of its memory is charged on the tenant's page by now. Threads that
/// were in the middle of a call may change it once more.
pub struct Former {
    usage: &'static UsagePage,
    slots: [(usize, Moved); 2], // where it stood; and where it stands, of a thread that had the old page and the new slot
}

impl Former {
    /// Nothing of `usage` is charged elsewhere yet.
    pub fn new(usage: &'static UsagePage, slots: [usize; 2]) -> Self {
        Self { usage, slots: slots.map(|slot| (slot, Moved::default())) }
    }

    /// Charges the rest to `new`.
    pub fn charge(&mut self, new: &ProcessSlot) {
        let [(was, first), (is, second)] = &mut self.slots;
        let from = |slot: usize, moved: &mut Moved| {
            if let Some(old) = self.usage.slots.get(slot) {
                new.move_memory(old, moved);
            }
        };
        from(*was, first);
        if is != was {
            from(*is, second);
        }
    }
}
