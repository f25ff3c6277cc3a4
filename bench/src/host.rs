//! A manager of one tenant inside the benchmark's own process: pages, socket, ticks. It speaks the protocol of the
//! node manager and decides nothing, so that a figure is the interposer's alone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::mapping::Mapped;
use weir_protocol::message::{Class, FailMode, GpuGrant, Hello, PAGES, Reply, SWITCH, Welcome};
use weir_protocol::pages::{ActivityPage, BucketPage, Grant, GrantPage, UsagePage};
use weir_protocol::price::PriceRow;
use weir_protocol::transport;
use weir_protocol::units::{Bytes, Tokens};

/// A running host; dropped, it stops ticking and its directory goes.
pub struct Host {
    directory: tempfile::TempDir,
    pages: Arc<Pages>,
    stop: Arc<AtomicBool>,
}

/// A tenant's pages on one GPU.
pub struct Pages {
    fds: [OwnedFd; PAGES],
    _activity: Mapped<ActivityPage>,
    grant: Mapped<GrantPage>,
    bucket: Mapped<BucketPage>,
    usage: Mapped<UsagePage>,
}

impl Host {
    /// A tenant on the GPU `uuid` with this grant and these prices.
    pub fn start(uuid: [u8; 16], grant: &Grant, prices: Vec<PriceRow>) -> io::Result<Self> {
        let pages = Arc::new(Pages::new(grant).map_err(io::Error::other)?);
        let directory = tempfile::tempdir()?;
        let listener = UnixListener::bind(directory.path().join("tenant.sock"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let serve_pages = pages.clone();
        std::thread::spawn(move || serve(&listener, &serve_pages, uuid, &prices));
        let (tick_pages, tick_stop) = (pages.clone(), stop.clone());
        std::thread::spawn(move || {
            while !tick_stop.load(Ordering::Relaxed) {
                tick_pages.grant.tick();
                std::thread::sleep(Duration::from_millis(1)); // the manager's own tick: it drives real processes
            }
        });
        Ok(Self { directory, pages, stop })
    }

    /// What goes into `WEIR_DIR`.
    pub fn place(&self) -> &Path {
        self.directory.path()
    }

    /// Puts `tokens` into the tenant's bucket.
    pub fn fill_bucket(&self, tokens: Tokens) {
        self.pages.bucket.charge(Tokens(-tokens.0));
    }

    /// Launches that the tenant's processes have counted. None: the preload library never attached, and a figure
    /// would be that of a program without limits.
    pub fn launches(&self) -> u64 {
        let lanes = self.pages.usage.slots.iter().flat_map(|slot| &slot.lanes);
        lanes.flat_map(|lane| &lane.calls).map(|calls| calls.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Pages {
    /// New ones with this grant.
    pub fn new(first: &Grant) -> Result<Self, weir_protocol::mapping::MapError> {
        let (grant_fd, grant) = Mapped::<GrantPage>::create("grant")?;
        let (bucket_fd, bucket) = Mapped::<BucketPage>::create("bucket")?;
        let (usage_fd, usage) = Mapped::<UsagePage>::create("usage")?;
        grant.init(first);
        bucket.init();
        let (activity_fd, activity) = Mapped::<ActivityPage>::create("activity")?;
        usage.init();
        activity.init(1);
        let fds = [grant_fd, bucket_fd, usage_fd, activity_fd];
        Ok(Self { fds, grant, bucket, usage, _activity: activity })
    }

    /// Answers whoever has said hello on `stream` with these pages, and lets him have `slot`.
    pub fn hand_out(&self, stream: &UnixStream, slot: u32, uuid: [u8; 16], prices: &[PriceRow]) -> bool {
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            tenant: "bench".into(),
            class: Class::Primary,
            mode: FailMode::Standalone,
            slot,
            gpus: vec![GpuGrant {
                uuid,
                memory_total: Bytes::gib(40),
                mps: false,
                in_stream: false,
                switch: SWITCH,
            }],
            prices: prices.to_vec(),
            context_memory: Bytes(0),
            oversubscribe: false,
            latency_metric: None,
        };
        let fds: Vec<BorrowedFd<'_>> = self.fds.iter().map(AsFd::as_fd).collect();
        transport::send(stream.as_fd(), &Reply::Welcome(welcome), &fds).is_ok()
    }
}

fn serve(listener: &UnixListener, pages: &Pages, uuid: [u8; 16], prices: &[PriceRow]) {
    let next_slot = AtomicU32::new(0);
    let mut connections: Vec<UnixStream> = Vec::new();
    for stream in listener.incoming().map_while(Result::ok) {
        if transport::receive::<Hello>(stream.as_fd()).is_err() {
            continue;
        }
        let slot = next_slot.fetch_add(1, Ordering::Relaxed) % 32;
        if pages.hand_out(&stream, slot, uuid, prices) {
            connections.push(stream);
        }
    }
}
