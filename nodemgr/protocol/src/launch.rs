//! The launch file: what a tenant's programs keep to while no node manager can be reached, or none that they understand.
//!
//! The manager writes it into the tenant's directory, beside the socket, when it opens the tenant's door, and anew with each
//! change of the budget. It is text, in a format with a number of its own: whoever reads it may be of another version than
//! the manager that wrote it. It is read strictly, since half a limit is none: each line in its place, nothing else.
//!
//! ```text
//! weir-launch 1
//! tenant train
//! class primary
//! oversubscribe no
//! context_bytes 0            what a context costs, as configured; 0: to be measured
//! latency_metric             by which the program tells its latencies; here none
//! rate_ppm 400000            the request: what is left to a tenant without a manager (design 7)
//! capacity_ns 8000000
//! resume_at_ns 4000000
//! in_flight_cap_ns 20000000
//! memory_bytes 2147483648    on each GPU
//! copy_bytes_per_s 0         0: unlimited
//! gpu 00112233445566778899aabbccddeeff 85899345920 no     UUID, memory of the card, whether MPS shares it
//! ```

use std::fmt::Write;

use crate::message::{Class, GpuGrant, SWITCH};
use crate::pages::{Gate, Grant, Rate};
use crate::units::{Bandwidth, Bytes, Nanos, Tokens};

/// Its name in the tenant's directory.
pub const LAUNCH_FILE: &str = "launch";

/// Longest that it may be, in bytes.
pub const LONGEST: usize = 4096;

/// Its first line.
const FORMAT: &str = "weir-launch 1";

/// Most GPUs of a tenant.
const MOST_GPUS: usize = 16;

/// What a launch file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The tenant's name, for messages.
    pub tenant: String,
    /// Its class.
    pub class: Class,
    /// Whether plain allocations beyond the limit become managed memory.
    pub oversubscribe: bool,
    /// What a context costs, as configured; 0: it is to be measured.
    pub context_memory: Bytes,
    /// The metric by which the program tells its latencies.
    pub latency_metric: Option<String>,
    /// What holds on each GPU. Its rate and its fallback rate are one.
    pub grant: Grant,
    /// The GPUs.
    pub gpus: Vec<GpuGrant>,
}

/// A line that is not what stands there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the launch file is not `{wanted}` and a value that can be")]
pub struct Flaw {
    line: usize,
    wanted: &'static str,
}

impl Launch {
    /// As it stands in the file.
    pub fn to_text(&self) -> String {
        let Self { tenant, class, oversubscribe, context_memory, latency_metric, grant, gpus } = self;
        let metric = latency_metric.as_deref().unwrap_or_default();
        let mut text = format!(
            "{FORMAT}\ntenant {tenant}\nclass {}\noversubscribe {}\ncontext_bytes {}\nlatency_metric {metric}\n\
             rate_ppm {}\ncapacity_ns {}\nresume_at_ns {}\nin_flight_cap_ns {}\nmemory_bytes {}\ncopy_bytes_per_s {}\n",
            class_name(*class),
            yes_or_no(*oversubscribe),
            context_memory.0,
            grant.fallback_rate.as_ppm(),
            grant.capacity.0,
            grant.resume_at.0,
            grant.in_flight_cap.0,
            grant.memory_limit.0,
            grant.copy_limit.0,
        );
        for gpu in gpus {
            let uuid = gpu.uuid.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}"); // to a string: cannot fail
                hex
            });
            let _ = writeln!(text, "gpu {uuid} {} {}", gpu.memory_total.0, yes_or_no(gpu.mps));
        }
        text
    }

    /// Reads what [`Self::to_text`] writes, and nothing else.
    ///
    /// # Errors
    /// The first line that is not what it should be.
    pub fn parse(text: &str) -> Result<Self, Flaw> {
        let mut lines = Lines { left: text, line: 0 };
        lines.value(FORMAT, |rest| rest.is_empty().then_some(()))?;
        let tenant = lines.value("tenant ", |name| is_word(name).then(|| name.to_owned()))?;
        let class = lines.value("class ", class_of)?;
        let oversubscribe = lines.value("oversubscribe ", truth)?;
        let context_memory = Bytes(lines.value("context_bytes ", number)?);
        let metric =
            lines.value("latency_metric ", |name| (name.is_empty() || is_word(name)).then_some(name))?;
        let rate = lines.value("rate_ppm ", rate)?;
        let capacity = lines.value("capacity_ns ", tokens)?;
        let resume_at = lines.value("resume_at_ns ", tokens)?;
        let in_flight_cap = Nanos(lines.value("in_flight_cap_ns ", number)?);
        let memory_limit = Bytes(lines.value("memory_bytes ", number)?);
        let copy_limit = Bandwidth(lines.value("copy_bytes_per_s ", number)?);
        let mut gpus = Vec::new();
        while gpus.is_empty() || !lines.left.is_empty() {
            gpus.push(lines.value("gpu ", |gpu| gpu_of(gpu).filter(|_| gpus.len() < MOST_GPUS))?);
        }
        let grant = Grant {
            generation: 0,
            rate,
            fallback_rate: rate,
            limit: rate,
            gate: Gate::Open,
            capacity,
            resume_at,
            in_flight_cap,
            memory_limit,
            copy_limit,
            hold: Nanos(0),
            back_at: Nanos(0),
            turn: Nanos(0),
        };
        let latency_metric = (!metric.is_empty()).then(|| metric.to_owned());
        Ok(Self { tenant, class, oversubscribe, context_memory, latency_metric, grant, gpus })
    }
}

/// What is left of a file.
struct Lines<'a> {
    left: &'a str,
    line: usize,
}

impl<'a> Lines<'a> {
    /// The value of the next line, which begins with `key` and ends.
    fn value<T>(&mut self, key: &'static str, read: impl FnOnce(&'a str) -> Option<T>) -> Result<T, Flaw> {
        self.line += 1;
        let flaw = Flaw { line: self.line, wanted: key.trim_end() };
        let Some((line, left)) = self.left.split_once('\n') else { return Err(flaw) };
        self.left = left;
        line.strip_prefix(key).and_then(read).ok_or(flaw)
    }
}

/// Printable, without a space: what names of tenants and metrics are made of.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Digits alone: the standard's own reader takes a sign, too.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Above nothing, at most the whole GPU: at a rate of zero a launch would wait for ever.
fn rate(text: &str) -> Option<Rate> {
    let ppm = u32::try_from(number(text)?).ok()?;
    (1..=Rate::FULL.as_ppm()).contains(&ppm).then_some(Rate::ppm(ppm))
}

fn tokens(text: &str) -> Option<Tokens> {
    i64::try_from(number(text)?).ok().map(Tokens)
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

const fn yes_or_no(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}

fn class_of(text: &str) -> Option<Class> {
    [Class::Latency, Class::Primary, Class::Filler].into_iter().find(|class| class_name(*class) == text)
}

const fn class_name(class: Class) -> &'static str {
    match class {
        Class::Latency => "latency",
        Class::Primary => "primary",
        Class::Filler => "filler",
    }
}

fn gpu_of(text: &str) -> Option<GpuGrant> {
    let mut parts = text.split(' ');
    let (hex, memory, mps, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let mut uuid = [0; 16];
    let digits = hex.len() == 2 * uuid.len() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (at, byte) in uuid.iter_mut().enumerate().filter(|_| digits) {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    digits.then_some(GpuGrant {
        uuid,
        memory_total: Bytes(number(memory)?),
        mps: truth(mps)?,
        in_stream: false,
        switch: SWITCH,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn launch() -> Launch {
        let (rate, gpu) = (Rate::ppm(400_000), |uuid| GpuGrant {
            uuid: [uuid; 16],
            memory_total: Bytes::gib(80),
            mps: uuid == 0xab,
            in_stream: false,
            switch: SWITCH,
        });
        Launch {
            tenant: "train-2".into(),
            class: Class::Filler,
            oversubscribe: true,
            context_memory: Bytes::mib(300),
            latency_metric: Some("vllm:time_to_first_token_seconds".into()),
            grant: Grant {
                rate,
                fallback_rate: rate,
                limit: rate,
                capacity: Tokens(8_000_000),
                resume_at: Tokens(4_000_000),
                in_flight_cap: Nanos::from_millis(20),
                memory_limit: Bytes::gib(2),
                copy_limit: Bandwidth(1 << 30),
                ..Grant::default()
            },
            gpus: vec![gpu(1), gpu(0xab)],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let quiet = Launch { latency_metric: None, ..launch() };
        for launch in [launch(), quiet] {
            let text = launch.to_text();
            assert_eq!(Launch::parse(&text), Ok(launch));
            assert!(text.len() <= LONGEST);
        }
    }

    #[test]
    fn a_line_that_is_missing_doubled_added_or_cut_short_is_named() {
        let text = launch().to_text();
        let lines: Vec<&str> = text.lines().collect();
        let file = |lines: &[&str]| lines.join("\n") + "\n";
        for at in 0..lines.len() - 1 {
            let without: Vec<_> =
                lines.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, l)| *l).collect();
            let doubled = [&lines[..=at], &lines[at..]].concat();
            assert!(
                at >= 12 || Launch::parse(&file(&without)).is_err_and(|flaw| flaw.line == at + 1),
                "{at}"
            );
            assert!(
                at >= 12 || Launch::parse(&file(&doubled)).is_err_and(|flaw| flaw.line == at + 2),
                "{at}"
            );
        }
        let added = file(&[&lines[..], &["limit 1"]].concat());
        assert_eq!(Launch::parse(&added), Err(Flaw { line: 15, wanted: "gpu" }));
        assert!(
            (0..text.len())
                .all(|end| end == text.find("gpu ab").unwrap() || Launch::parse(&text[..end]).is_err())
        );
    }

    #[test]
    fn a_value_that_cannot_be_is_no_limit() {
        let text = launch().to_text();
        for (good, bad) in [
            ("weir-launch 1", "weir-launch 2"),
            ("rate_ppm 400000", "rate_ppm 0"),
            ("rate_ppm 400000", "rate_ppm 1000001"),
            ("memory_bytes 2147483648", "memory_bytes +2147483648"),
            ("memory_bytes 2147483648", "memory_bytes 18446744073709551616"),
            ("class filler", "class boss"),
            ("oversubscribe yes", "oversubscribe"),
            ("tenant train-2", "tenant train 2"),
            ("gpu 0101", "gpu 01é"),
        ] {
            assert!(text.contains(good));
            assert!(Launch::parse(&text.replace(good, bad)).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_harms_the_reader(text in ".{0,300}", cut: prop::sample::Index) {
            let whole = launch().to_text();
            let _ = Launch::parse(&text);
            let _ = Launch::parse(&(whole[..cut.index(whole.len())].to_owned() + &text));
        }
    }
}
