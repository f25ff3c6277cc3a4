//! What NVML says of one GPU at one moment, and whether it can be true.

use weir_protocol::units::Bytes;

use super::Power;

/// The largest process id that Linux gives (`PID_MAX_LIMIT`).
const PID_MAX: i32 = 1 << 22;

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuReading {
    /// Memory in use, in bytes.
    pub used: u64,
    /// Processes with a context; absent where NVML does not list any (WSL, for example).
    pub processes: Option<Vec<Listed>>,
    /// Its power and clocks.
    pub power: Power,
}

/// A process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub pid: i32,
    /// Memory that it holds there, in bytes; absent where NVML does not say.
    pub bytes: Option<u64>,
}

impl GpuReading {
    /// This, if it can be true of GPU `index`.
    ///
    /// # Errors
    /// What cannot be.
    pub fn sound(self, index: usize, total: Bytes) -> Result<Self, String> {
        if self.used > total.0 {
            return Err(format!("GPU {index}: NVML says that {} of {total} are in use", Bytes(self.used)));
        }
        for Listed { pid, bytes } in self.processes.iter().flatten() {
            if !(1..=PID_MAX).contains(pid) {
                return Err(format!("GPU {index}: NVML lists a process {pid}"));
            }
            if let Some(bytes) = bytes.filter(|bytes| *bytes > total.0) {
                return Err(format!("GPU {index}: NVML says that process {pid} holds {}", Bytes(bytes)));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_not_believed() {
        let total = Bytes::gib(40);
        let of = |used, pid, bytes| GpuReading {
            used,
            processes: Some(vec![Listed { pid, bytes }]),
            ..GpuReading::default()
        };
        for sound in [of(0, 1, None), of(total.0, PID_MAX, Some(total.0))] {
            assert_eq!(sound.clone().sound(0, total), Ok(sound));
        }
        for nonsense in [of(total.0 + 1, 1, None), of(0, 0, None), of(0, -1, None), of(0, PID_MAX + 1, None)]
        {
            assert!(nonsense.clone().sound(0, total).is_err(), "{nonsense:?}");
        }
        assert!(of(0, 1, Some(u64::MAX)).sound(0, total).is_err());
    }
}
