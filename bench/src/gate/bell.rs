//! A filler that sees nothing but its grant page: it registers as `libweir.so` does, and then only looks whether its gate is
//! open. It launches nothing, so what it sees is the manager's doing.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_protocol::mapping::{Access, Mapped};
use weir_protocol::pages::{Gate, GrantPage};

use super::cores::{self, Cores};
use super::player::Part;
use super::{Closing, Scene, Wake, now, told};
use crate::registrant;

/// The latency tenant's wakes, and the closings of the filler's gate.
pub fn beside(cores: Cores) -> io::Result<(Vec<Wake>, Vec<Closing>)> {
    let scene = Scene::new()?;
    let (_socket, _, pages) = registrant::register(&scene.offline)?;
    let page = pages.first().ok_or(io::ErrorKind::NotFound)?;
    let page = Mapped::<GrantPage>::open(page, Access::ReadOnly).map_err(io::Error::other)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            cores.of_filler().map_or(Ok(()), cores::run_on)?;
            Ok(look(&page, &over))
        });
        let wakes = scene.start(Part::Waker, &scene.online, cores).and_then(told);
        over.store(true, Ordering::Relaxed);
        let closings: io::Result<_> = looks.join().map_err(|_| io::Error::other("the look-out has died"))?;
        Ok((wakes?, closings?))
    })
}

fn look(page: &GrantPage, over: &AtomicBool) -> Vec<Closing> {
    let (mut closings, mut opened, mut generation) = (Vec::new(), None, 0);
    while !over.load(Ordering::Relaxed) {
        if page.generation() == generation {
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
