//! The numbers for which streams wait, and the words that the GPU writes, step by step: each step between any two of the others'.
//! Run by `RUSTFLAGS="--cfg loom"`; without it there is nothing here.

#![cfg(loom)]

/// A lock of the model checker's own.
mod lock {
    use loom::sync::{Mutex, MutexGuard};

    #[derive(Debug)]
    pub struct Lock<T>(Mutex<T>);

    impl<T: Default> Default for Lock<T> {
        fn default() -> Self {
            Self(Mutex::new(T::default()))
        }
    }

    impl<T> Lock<T> {
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}
#[path = "../src/piece.rs"]
#[allow(dead_code, reason = "how long pieces are is no matter of order")]
mod piece;
#[path = "../src/flight/reached.rs"]
mod reached;

use loom::sync::Arc;

use piece::{PIECE, Pieces};
use reached::Reached;
use weir_protocol::sync::{AtomicU64, Ordering};
use weir_protocol::units::Nanos;

const WORK: u64 = 1_000;

/// The helper: lets go what waits, and says how much work that was.
fn let_go(pieces: &Pieces) -> u64 {
    let next = || pieces.next().and_then(|piece| pieces.take(piece.number));
    std::iter::from_fn(next).map(|piece| piece.work).sum()
}

#[test]
fn each_launch_that_joins_is_let_go_once_and_no_stream_waits_for_a_number_that_never_comes() {
    loom::model(|| {
        let pieces = Arc::new(Pieces::default());
        let launching = pieces.clone();
        let thread = loom::thread::spawn(move || {
            let first = launching.join(0, WORK, PIECE, Nanos(1));
            launching.join(first.number, WORK, PIECE, Nanos(1)).number
        });
        let early = let_go(&pieces);
        let behind = thread.join().unwrap();
        let late = let_go(&pieces);
        assert_eq!(early + late, 2 * WORK);
        assert!(pieces.last_gone() >= behind && !pieces.any_wait());
    });
}

#[test]
fn no_launch_flows_past_a_piece_that_waits() {
    loom::model(|| {
        let pieces = Arc::new(Pieces::default());
        let other = pieces.clone();
        let thread = loom::thread::spawn(move || other.start_flow()); // a launch that was granted
        pieces.join(0, WORK, PIECE, Nanos(1));
        thread.join().unwrap();
        assert!(!pieces.flow(), "the piece waits still");
    });
}

#[test]
fn what_two_see_the_gpu_write_is_counted_once() {
    loom::model(|| {
        let shared = Arc::new((Reached::default(), AtomicU64::new(0)));
        let other = shared.clone();
        let see = |(reached, counted): &(Reached, AtomicU64), words: [u64; 2]| {
            for word in words {
                counted.fetch_add(reached.raise(word), Ordering::Relaxed);
            }
        };
        let thread = loom::thread::spawn(move || see(&other, [1, 3]));
        see(&shared, [2, 3]);
        thread.join().unwrap();
        assert_eq!((shared.0.get(), shared.1.load(Ordering::Relaxed)), (3, 3));
    });
}
