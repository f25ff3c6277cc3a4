//! What a virtual machine's host takes of its processors meanwhile ("steal", proc_stat(5)): a figure of such a run is the host's in
//! part.

use std::io;
use std::sync::LazyLock;

use serde::Serialize;

/// What more than this was taken from is the host's figure, in percent.
const AT_PEACE: f64 = 1.0;

/// It is measured anew so often at most, all in all.
const TRIES: usize = 4;

/// How often it was measured until the host left the processors alone, and what it took each time, in percent. The try of which it
/// took least is the one that counts: what was measured has no say in that.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tries {
    stolen_percent: Vec<f64>,
}

impl Tries {
    /// What the host took in the try that counts, in percent.
    pub fn stolen_percent(&self) -> f64 {
        least(&self.stolen_percent)
    }

    /// Measures until there is peace.
    pub fn until_peace<T>(mut measure: impl FnMut() -> io::Result<T>) -> io::Result<(T, Self)> {
        Self::judge(|| {
            let before = Processors::now();
            let measured = measure()?;
            Ok((measured, before.stolen_percent()))
        })
    }

    fn judge<T>(mut measure: impl FnMut() -> io::Result<(T, f64)>) -> io::Result<(T, Self)> {
        let (mut best, stolen) = measure()?;
        let mut tries = vec![stolen];
        while tries.len() < TRIES && least(&tries) > AT_PEACE {
            let (measured, stolen) = measure()?;
            if stolen < least(&tries) {
                best = measured;
            }
            tries.push(stolen);
        }
        Ok((best, Self { stolen_percent: tries }))
    }
}

fn least(tries: &[f64]) -> f64 {
    tries.iter().copied().fold(f64::INFINITY, f64::min)
}

/// When this process began to measure; `main` looks first.
pub static BEGAN: LazyLock<Processors> = LazyLock::new(Processors::now);

/// Processor time since the machine has started, in its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors {
    stolen: u64,
    all: u64,
}

impl Processors {
    /// Until now.
    pub fn now() -> Self {
        Self::read(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// By the first line, of all processors: user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
    fn read(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let times: Vec<u64> = line.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        Self { stolen: times.get(7).copied().unwrap_or(0), all: times.iter().sum() }
    }

    /// How much of them the host has taken since then, in percent.
    pub fn stolen_percent(&self) -> f64 {
        Self::now().percent_since(self)
    }

    fn percent_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        100.0 * self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_took_is_a_part_of_all_time() {
        let before = Processors::read("cpu  100 0 100 700 0 0 0 100 50 0\ncpu0 1 1 1 1 1 1 1 1\n");
        let after = Processors::read("cpu  200 0 100 950 0 0 0 150 90 0\n");
        assert_eq!((before.all, after.percent_since(&before)), (1_000, 12.5));
        assert_eq!(Processors::read(""), Processors { stolen: 0, all: 0 });
    }

    #[test]
    fn what_was_disturbed_is_measured_anew_and_the_least_disturbed_counts() {
        let of = |stolen: &[f64]| {
            let mut each = stolen.iter().copied().enumerate();
            let (best, tries) = Tries::judge(|| Ok(each.next().unwrap())).unwrap();
            (best, tries.stolen_percent.len())
        };
        assert_eq!(of(&[0.4, 0.0]), (0, 1));
        assert_eq!(of(&[9.0, 0.9, 0.0]), (1, 2));
        assert_eq!(of(&[9.0, 3.0, 5.0, 4.0, 0.0]), (1, 4));
    }
}
