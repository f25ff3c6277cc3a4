//! The least that a thousand registrations cost on this machine: the same processes come to somebody who accepts, hears
//! their hello, hands out pages and hangs up. He knows nobody, keeps nothing, and looks after nobody.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use weir_protocol::message::Hello;
use weir_protocol::pages::Grant;
use weir_protocol::transport;

use crate::host::Pages;

/// Slots that a tenant's pages have.
const SLOTS: usize = weir_protocol::pages::PROCESS_SLOTS;

/// One who hands out pages, to so many tenants' processes.
pub struct Bare {
    directory: tempfile::TempDir,
    serving: JoinHandle<io::Result<()>>,
    tenants: usize,
}

struct Tenant {
    door: UnixListener,
    pages: Pages,
}

impl Bare {
    /// Serves so many processes in all.
    pub fn start(tenants: usize, processes: usize) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let tenant = |n: usize| {
            let place = directory.path().join(n.to_string());
            std::fs::create_dir(&place)?;
            let door = UnixListener::bind(place.join("tenant.sock"))?;
            door.set_nonblocking(true)?;
            let pages = Pages::new(&Grant::default()).map_err(io::Error::other)?;
            Ok(Tenant { door, pages })
        };
        let all = (0..tenants).map(tenant).collect::<io::Result<Vec<_>>>()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (n, tenant) in all.iter().enumerate() {
            epoll::add(&epoll, &tenant.door, EventData::new_u64(n as u64), EventFlags::IN)?;
        }
        let serving = std::thread::spawn(move || serve(&epoll, &all, processes));
        Ok(Self { directory, serving, tenants })
    }

    /// Where its tenants' processes find it.
    pub fn places(&self) -> Vec<PathBuf> {
        (0..self.tenants).map(|n| self.directory.path().join(n.to_string())).collect()
    }

    /// Waits until all have been served.
    pub fn end(self) -> io::Result<()> {
        self.serving.join().map_err(|_| io::Error::other("the bare server panicked"))?
    }
}

fn serve(epoll: &OwnedFd, tenants: &[Tenant], processes: usize) -> io::Result<()> {
    let mut served = 0;
    let mut events = [const { MaybeUninit::uninit() }; 256];
    while served < processes {
        let (ready, _) = epoll::wait(epoll, &mut events, None)?;
        for tenant in ready.iter().filter_map(|event| tenants.get(usize::try_from(event.data.u64()).ok()?)) {
            while let Ok((stream, _)) = tenant.door.accept() {
                transport::receive::<Hello>(&stream).map_err(io::Error::other)?;
                let slot = u32::try_from(served % SLOTS).unwrap_or_default();
                if !tenant.pages.hand_out(&stream, slot, [0; 16], &[]) {
                    return Err(io::Error::other("a process went before it was served"));
                }
                served += 1;
            }
        }
    }
    Ok(())
}
