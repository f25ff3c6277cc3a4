//! What a player launches: units of work, made of kernels by their time. `bench/check/torch_play.py` has the same names, made of
//! what PyTorch users run.

use std::str::FromStr;

use serde::Serialize;

/// Times of all kernels, in microseconds; the simulated GPU's table has a row for each.
pub const TIMES_US: [u32; 13] = [2, 5, 10, 20, 50, 100, 200, 300, 1_000, 2_000, 3_000, 5_000, 10_000];

/// Blocks of a kernel that holds every SM: as many as the largest GPU of today has SMs.
pub const WIDE: u32 = 132;

/// Name of the kernel that takes so long.
pub fn name(us: u32) -> String {
    format!("check_{us}us")
}

/// A training step.
pub const STEP: &str = "train";

/// The kernel that runs until a word is set.
pub const SPIN: &str = "check_spin";

/// A row of the simulated GPU's table.
#[derive(Serialize)]
struct Row {
    name: String,
    time_us: f64,
    spins: bool,
}

/// The simulated GPU's table of all kernels.
pub fn table() -> Result<String, toml::ser::Error> {
    #[derive(Serialize)]
    struct Table {
        kernel: Vec<Row>,
    }
    let rows = TIMES_US.iter().map(|us| Row { name: name(*us), time_us: f64::from(*us), spins: false });
    let spin = Row { name: SPIN.into(), time_us: 10.0, spins: true };
    toml::to_string(&Table { kernel: rows.chain([spin]).collect() })
}

/// Launches of one kernel in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its time.
    pub us: u32,
    /// Its blocks.
    pub blocks: u32,
    /// How many launches.
    pub count: u32,
}

/// What makes a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// In this order.
    pub parts: Vec<Part>,
    /// As one graph.
    pub is_graph: bool,
    /// Or so many MiB copied within the GPU's memory, and no kernel of the table.
    pub copied_mib: Option<u32>,
    /// The program waits for each unit, as one does that looks at the result.
    pub waits: bool,
    /// A second process steps, too, and after each step both exchange through the host.
    pub exchanges: bool,
}

impl Work {
    fn of(parts: &[Part]) -> Self {
        Self { parts: parts.to_vec(), is_graph: false, copied_mib: None, waits: false, exchanges: false }
    }

    /// Time of a unit alone on the GPU, in microseconds, but for what launching takes.
    pub fn unit_us(&self) -> f64 {
        self.parts.iter().map(|part| f64::from(part.us) * f64::from(part.count)).sum()
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |us, count| Part { us, blocks: WIDE, count };
        let kernels = Self::of;
        let graph = |parts: &[Part]| Self { is_graph: true, ..kernels(parts) };
        Ok(match text {
            "tiny" => kernels(&[Part { us: 5, blocks: 1, count: 200 }]),
            "graph" => graph(&[part(5, 40), part(100, 10)]),
            "matmul" => kernels(&[part(5_000, 1)]),
            "mix" => kernels(&[part(5, 400), part(100, 30), part(5_000, 1)]),
            STEP => Self { waits: true, ..kernels(&[part(20, 50), part(100, 20)]) },
            "exchange" => Self { exchanges: true, ..STEP.parse()? },
            "decode" => Self { waits: true, ..graph(&[part(5, 40), part(100, 38)]) },
            _ => return shape(text),
        })
    }
}

/// `US:BLOCKS`, or `graph:US:COUNT`, or `within:MIB`.
fn shape(text: &str) -> Result<Work, String> {
    let unknown = || format!("`{text}` is no work");
    if let Some(mib) = text.strip_prefix("within:") {
        let mib = mib.parse().ok().filter(|mib| (1..=4_096).contains(mib)).ok_or_else(unknown)?;
        return Ok(Work { copied_mib: Some(mib), ..Work::of(&[]) });
    }
    let (is_graph, numbers) = text.strip_prefix("graph:").map_or((false, text), |numbers| (true, numbers));
    let numbers: Option<Vec<u32>> = numbers.split(':').map(|number| number.parse().ok()).collect();
    let [us, many] = numbers.ok_or_else(unknown)?.try_into().map_err(|_| unknown())?;
    if !TIMES_US.contains(&us) || !(1..=100_000).contains(&many) {
        return Err(unknown());
    }
    let (blocks, count) = if is_graph { (WIDE, many) } else { (many, 1) };
    Ok(Work { is_graph, ..Work::of(&[Part { us, blocks, count }]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_known_by_name_or_shape_and_all_of_it_has_a_row() {
        for name in
            ["tiny", "graph", "matmul", "mix", "train", "exchange", "decode", "1000:66", "graph:100:50"]
        {
            let work: Work = name.parse().unwrap();
            assert!(
                work.unit_us() > 0.0 && work.parts.iter().all(|part| TIMES_US.contains(&part.us)),
                "{name}"
            );
        }
        assert_eq!("within:64".parse::<Work>().map(|work| work.copied_mib), Ok(Some(64)));
        for nonsense in ["", "7:1", "100:0", "graph:100", "100:1:1", "-5:1", "within:0", "within:"] {
            assert!(nonsense.parse::<Work>().is_err(), "{nonsense}");
        }
    }
}
