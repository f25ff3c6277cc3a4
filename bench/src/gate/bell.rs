//! A filler that sees nothing but its grant page: it registers as `libweir.so` does, and then only looks whether its gate is
//! open, and shows that it waits while it is not. It launches nothing, so what it sees is the manager's doing.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_protocol::mapping::{Access, Mapped};
use weir_protocol::pages::{Gate, GrantPage, ProcessSlot, UsagePage};

use super::cores::{self, Cores};
use super::player::Part;
use super::{Closing, Scene, Wake, now, told};
use crate::registrant;

/// A launch that waits asks again so often, ns.
const ASKS: u64 = 1_000_000;

/// The latency tenant's wakes, and the closings of the filler's gate.
pub fn beside(cores: Cores) -> io::Result<(Vec<Wake>, Vec<Closing>)> {
    let scene = Scene::new()?;
    let (_socket, slot, pages) = registrant::register(&scene.offline)?;
    let [page, _, usage, ..] = pages.as_slice() else { return Err(io::ErrorKind::NotFound.into()) };
    let page = Mapped::<GrantPage>::open(page, Access::ReadOnly).map_err(io::Error::other)?;
    let usage = Mapped::<UsagePage>::open(usage, Access::ReadWrite).map_err(io::Error::other)?;
    let slot = usage.slots.get(slot).ok_or(io::ErrorKind::NotFound)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            cores.of_filler().map_or(Ok(()), cores::run_on)?;
            Ok(look(&page, slot, &over))
        });
        let wakes = scene.start(Part::Waker, &scene.online, cores).and_then(told);
        over.store(true, Ordering::Relaxed);
        let closings: io::Result<_> = looks.join().map_err(|_| io::Error::other("the look-out has died"))?;
        Ok((wakes?, closings?))
    })
}

fn look(page: &GrantPage, slot: &ProcessSlot, over: &AtomicBool) -> Vec<Closing> {
    let (mut closings, mut opened, mut generation, mut asked) = (Vec::new(), None, 0, 0);
    while !over.load(Ordering::Relaxed) {
        if page.generation() == generation {
            if opened.is_none() && now() > asked + ASKS {
                slot.put_off.fetch_add(1, Ordering::Relaxed);
                asked = now();
            }
            std::hint::spin_loop();
            continue;
        }
        let grant = page.read();
        generation = grant.generation;
        match (grant.gate, opened) {
            (Gate::Open, None) => opened = Some(now()),
            (Gate::Closed, Some(open)) => {
                closings.push(Closing { open, closed: now() });
                opened = None;
            }
            _ => {}
        }
    }
    closings
}
