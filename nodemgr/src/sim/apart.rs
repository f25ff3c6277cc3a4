//! Several runs at once, on as many threads as there are cores. They have nothing in common, so that each comes to what it
//! would come to by itself, and their results stand in the order in which they were asked for.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};

/// What `run` makes of each of `jobs`, in their order.
pub fn each<J: Sync, R: Send>(jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed); // hands out numbers, and orders nothing
            let Some(job) = jobs.get(at) else { return done };
            done.push((at, run(job)));
        }
    };
    let threads = available_parallelism().map_or(1, NonZero::get).min(jobs.len());
    let mut done = scope(|scope| {
        // Where no thread is to be had this one does all of it.
        let start = |_| Builder::new().name("weir-sim".into()).spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (1..threads).filter_map(start).collect();
        let mut done = work();
        for helper in helpers {
            done.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn results_stand_in_the_order_of_the_jobs_however_long_each_takes() {
        let jobs: Vec<u64> = (0..100).rev().collect();
        let done = each(&jobs, |n| (0..n * 1_000).map(black_box).max().map_or(0, |_| *n));
        assert_eq!(done, jobs);
        assert!(each(&[], |(): &()| ()).is_empty());
    }
}
