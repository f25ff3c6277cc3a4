//! Orders of the calibration alone.
//!
//! | order | answer |
//! | --- | --- |
//! | `single N` | `{"gpu_us"}`: a unit between two events, behind another one; the median of N |
//! | `row N` | `{"gpu_ms"}`: N units, all of them launched before the first one begins; so are the next two |
//! | `beside N` | `{"gpu_ms", "call_ns", "query_ns"}`: N units with an event behind each, what recording takes of the host, and asking for one that was reached |
//! | `written N` | `{"gpu_ms", "call_ns"}`: N units, behind each of which the GPU writes a word |
//! | `waited N` | `{"gpu_ms", "call_ns"}`: N units, behind each of which the stream waits for a word that is as it should be |
//! | `dependent N` | `{"gpu_ms"}`: N launches each of which may be started while the one before it ends, which never says so early |
//! | `kernels N` | `{"bytes"}`: what a module with N kernels, each launched once, takes of the memory |
//! | `virtual MIB` | `{"map_gb_s", "unmap_gb_s"}`: pages made, mapped and opened; the same undone |
//! | `closed MS` | `{"released_us"}`: a unit stands behind a wait for a word that the host sets after so long; from then until it is done |
//! | `closed-legacy MS` | the same in the legacy stream |
//! | `spin MS` | `{"spun_ms"}`: a kernel of one block waits for a word which the host sets after so long |

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_abi::fns;
use weir_abi::types::*;

use super::memory::{ask, on_device};
use super::{Player, Refused, work};
use crate::client::{ClientError, Driver, check};
use crate::kernels::{Body, Kernel};
use crate::sample::Spread;

/// Calls of the median that is told.
const ASKED: usize = 200;

/// Times that pages are mapped; the best counts.
const TRIES: usize = 3;

impl Player {
    /// Does what it is told, if it knows what that is.
    pub(super) fn probe(
        &mut self,
        word: &str,
        number: impl Fn() -> Result<u64, Refused>,
    ) -> Result<Option<Value>, Refused> {
        Ok(Some(match word {
            "row" => json!({"gpu_ms": self.followed(number()?, |_| Ok(()))?}),
            "single" => json!({"gpu_us": self.single(number()?)?}),
            "beside" => self.beside_events(number()?)?,
            "written" => self.written(number()?)?,
            "waited" => self.waited(number()?)?,
            "dependent" => json!({"gpu_ms": self.dependent(number()?, self.rows[0].0, |_| Ok(()))?}),
            "early" => self.early(number()?)?,
            "kernels" => json!({"bytes": self.kernels(number()?)?}),
            "virtual" => self.pages(usize::try_from(number()? << 20).unwrap_or(0))?,
            "closed" => json!({"released_us": self.closed(self.stream, Duration::from_millis(number()?))?}),
            "closed-legacy" => {
                json!({"released_us": self.closed(CU_STREAM_LEGACY, Duration::from_millis(number()?))?})
            }
            "spin" => json!({"spun_ms": self.spin(Duration::from_millis(number()?))?}),
            _ => return Ok(None),
        }))
    }

    fn single(&mut self, units: u64) -> Result<f64, ClientError> {
        let mut took_us = Vec::new();
        for _ in 0..units {
            self.launch()?;
            let first = self.events.mark()?;
            self.launch()?;
            let second = self.events.mark()?;
            self.events.wait(second)?;
            took_us.push(1e3 * self.events.between_ms(first, second)?);
        }
        Ok(Spread::of(&took_us).median)
    }

    /// So many units, each followed by something; what the GPU took for all of that, ms. They wait for a word until the last one is
    /// launched: else the host's pace would be told where that is the slower one.
    fn followed(
        &mut self,
        units: u64,
        mut follow: impl FnMut(&mut Self) -> Result<(), ClientError>,
    ) -> Result<f64, ClientError> {
        let word = Word::new(self)?;
        self.wait_for(&word)?;
        let first = self.events.make_one()?;
        for _ in 0..units {
            self.launch()?;
            follow(self)?;
        }
        let second = self.events.make_one()?;
        word.set();
        self.driver.synchronize()?;
        word.free(self)?;
        self.events.elapsed_ms(first, second)
    }

    /// A kernel of one block that waits until the word is set.
    fn wait_for(&self, word: &Word) -> Result<(), ClientError> {
        let function = self.driver.function(work::SPIN, self.rows.len() + 1)?;
        let mut address = word.device;
        let mut parameters = [(&raw mut address).cast::<c_void>()];
        let answer = ask!(
            self.memory,
            cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, self.stream, parameters.as_mut_ptr(), null_mut())
        )?;
        check("cuLaunchKernel", answer)
    }

    fn beside_events(&mut self, units: u64) -> Result<Value, ClientError> {
        let mut calls_ns = Vec::new();
        let gpu_ms = self.followed(units, |player| {
            let start = Instant::now();
            player.events.record()?;
            calls_ns.push(start.elapsed().as_nanos() as f64);
            Ok(())
        })?;
        let event = self.events.make_one()?;
        self.driver.synchronize()?;
        // SAFETY: the symbol is given the type that weir-abi's table has for it.
        let query = unsafe { self.memory.library.get::<fns::cuEventQuery>(b"cuEventQuery\0") }?;
        let mut queries_ns = Vec::new();
        for _ in 0..ASKED {
            let start = Instant::now();
            // SAFETY: an event of the driver's.
            check("cuEventQuery", unsafe { query(event) })?;
            queries_ns.push(start.elapsed().as_nanos() as f64);
        }
        let median = |samples: &[f64]| Spread::of(samples).median;
        Ok(json!({"gpu_ms": gpu_ms, "call_ns": median(&calls_ns), "query_ns": median(&queries_ns)}))
    }

    fn written(&mut self, units: u64) -> Result<Value, ClientError> {
        let (word, stream) = (Word::new(self)?, self.stream);
        // SAFETY: as in `beside_events`; a pointer of its own, as the loop borrows the player.
        let write = *unsafe {
            self.memory.library.get::<fns::cuStreamWriteValue32_v2>(b"cuStreamWriteValue32_v2\0")
        }?;
        let mut calls_ns = Vec::new();
        let gpu_ms = self.followed(units, |_| {
            let start = Instant::now();
            // SAFETY: a stream and a word of the driver's.
            check("cuStreamWriteValue32", unsafe { write(stream, word.device, 1, 0) })?;
            calls_ns.push(start.elapsed().as_nanos() as f64);
            Ok(())
        })?;
        word.free(self)?;
        Ok(json!({"gpu_ms": gpu_ms, "call_ns": Spread::of(&calls_ns).median}))
    }

    fn waited(&mut self, units: u64) -> Result<Value, ClientError> {
        let (word, stream) = (Word::new(self)?, self.stream);
        word.set();
        // SAFETY: as in `written`.
        let wait =
            *unsafe { self.memory.library.get::<fns::cuStreamWaitValue32_v2>(b"cuStreamWaitValue32_v2\0") }?;
        let mut calls_ns = Vec::new();
        let gpu_ms = self.followed(units, |_| {
            let start = Instant::now();
            // SAFETY: a stream and a word of the driver's.
            check("cuStreamWaitValue32", unsafe { wait(stream, word.device, 1, 0) })?;
            calls_ns.push(start.elapsed().as_nanos() as f64);
            Ok(())
        })?;
        word.free(self)?;
        Ok(json!({"gpu_ms": gpu_ms, "call_ns": Spread::of(&calls_ns).median}))
    }

    /// Kernels that let the next one begin at once: one behind the other, and with an event recorded between each two.
    fn early(&mut self, launches: u64) -> Result<Value, ClientError> {
        let time_us = f64::from(self.work.parts[0].us);
        let name = work::name(self.work.parts[0].us); // as that one, by which the simulated GPU knows its time
        let module = Driver::open_with(&[Kernel { name: &name, body: Body::Early(time_us) }])?;
        let function = module.function(&name, 0)?;
        let gpu_ms = self.dependent(launches, function, |_| Ok(()))?;
        let recorded_ms = self.dependent(launches, function, |player| player.events.record())?;
        Ok(json!({"gpu_ms": gpu_ms, "recorded_ms": recorded_ms}))
    }

    /// Launches that may begin before the one before them has ended, each followed by something; what the GPU took for all, ms.
    fn dependent(
        &mut self,
        launches: u64,
        function: CUfunction,
        mut follow: impl FnMut(&mut Self) -> Result<(), ClientError>,
    ) -> Result<f64, ClientError> {
        let (_, blocks, _) = self.rows[0];
        let value = CUlaunchAttributeValue { programmatic_stream_serialization_allowed: 1 };
        let id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let mut attribute = CUlaunchAttribute { id, pad: [0; 4], value };
        let config = CUlaunchConfig {
            grid_dim_x: blocks,
            grid_dim_y: 1,
            grid_dim_z: 1,
            block_dim_x: 128,
            block_dim_y: 1,
            block_dim_z: 1,
            shared_mem_bytes: 0,
            stream: self.stream,
            attrs: &raw mut attribute,
            num_attrs: 1,
        };
        self.driver.synchronize()?;
        let first = self.events.make_one()?;
        for _ in 0..launches {
            let answer =
                ask!(self.memory, cuLaunchKernelEx(&raw const config, function, null_mut(), null_mut()))?;
            check("cuLaunchKernelEx", answer)?;
            follow(self)?;
        }
        let second = self.events.make_one()?;
        self.driver.synchronize()?;
        self.events.elapsed_ms(first, second)
    }

    fn kernels(&self, count: u64) -> Result<i64, ClientError> {
        let free = || -> Result<i64, ClientError> {
            let (mut free, mut total) = (0, 0);
            check("cuMemGetInfo_v2", ask!(self.memory, cuMemGetInfo_v2(&raw mut free, &raw mut total))?)?;
            Ok(i64::try_from(free).unwrap_or(i64::MAX))
        };
        let before = free()?;
        let names: Vec<String> = (0..count).map(|n| format!("check_one_of_many_{n}")).collect();
        let more = Driver::open_with(&names.iter().map(|name| Kernel::nothing(name)).collect::<Vec<_>>())?;
        for (n, name) in names.iter().enumerate() {
            more.launch_into(self.stream, more.function(name, n)?, 1)?;
        }
        self.driver.synchronize()?;
        Ok(before - free()?)
    }

    fn pages(&self, bytes: usize) -> Result<Value, ClientError> {
        let mut best_s = [f64::INFINITY; 2];
        for _ in 0..TRIES {
            let (mut handle, mut at, wanted) = (0, 0, on_device());
            let location = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
            let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
            let start = Instant::now();
            let answer = ask!(self.memory, cuMemAddressReserve(&raw mut at, bytes, 0, 0, 0))?;
            check("cuMemAddressReserve", answer)?;
            let answer = ask!(self.memory, cuMemCreate(&raw mut handle, bytes, &raw const wanted, 0))?;
            check("cuMemCreate", answer)?;
            check("cuMemMap", ask!(self.memory, cuMemMap(at, bytes, 0, handle, 0))?)?;
            check("cuMemSetAccess", ask!(self.memory, cuMemSetAccess(at, bytes, &raw const access, 1))?)?;
            let mapped = start.elapsed().as_secs_f64();
            let start = Instant::now();
            check("cuMemUnmap", ask!(self.memory, cuMemUnmap(at, bytes))?)?;
            check("cuMemRelease", ask!(self.memory, cuMemRelease(handle))?)?;
            check("cuMemAddressFree", ask!(self.memory, cuMemAddressFree(at, bytes))?)?;
            let took = [mapped, start.elapsed().as_secs_f64()];
            best_s.iter_mut().zip(took).for_each(|(best, took)| *best = best.min(took));
        }
        let [map, unmap] = best_s.map(|seconds| bytes as f64 / seconds / 1e9);
        Ok(json!({"map_gb_s": map, "unmap_gb_s": unmap}))
    }

    fn closed(&self, stream: CUstream, time: Duration) -> Result<f64, ClientError> {
        let word = Word::new(self)?;
        let answer = ask!(self.memory, cuStreamWaitValue32_v2(stream, word.device, 1, 0))?;
        check("cuStreamWaitValue32", answer)?;
        let (function, blocks, _) = self.rows[0];
        self.driver.launch_into(stream, function, blocks)?;
        std::thread::sleep(time);
        let start = Instant::now();
        word.set();
        self.driver.synchronize()?;
        let released = start.elapsed().as_secs_f64() * 1e6;
        word.free(self)?;
        Ok(released)
    }

    fn spin(&self, time: Duration) -> Result<f64, ClientError> {
        let word = Word::new(self)?;
        let start = Instant::now();
        self.wait_for(&word)?;
        std::thread::sleep(time); // a peer that comes late
        word.set();
        self.driver.synchronize()?;
        let spun = start.elapsed().as_secs_f64() * 1e3;
        word.free(self)?;
        Ok(spun)
    }
}

/// A word of the host's that the GPU sees, zero at first.
struct Word {
    host: *mut c_void,
    device: CUdeviceptr,
}

impl Word {
    fn new(player: &Player) -> Result<Self, ClientError> {
        const DEVICE_MAP: std::ffi::c_uint = 2; // CU_MEMHOSTALLOC_DEVICEMAP
        let (mut host, mut device) = (null_mut(), 0);
        check("cuMemHostAlloc", ask!(player.memory, cuMemHostAlloc(&raw mut host, 4, DEVICE_MAP))?)?;
        let answer = ask!(player.memory, cuMemHostGetDevicePointer_v2(&raw mut device, host, 0))?;
        check("cuMemHostGetDevicePointer_v2", answer)?;
        // SAFETY: four bytes of pinned memory that nobody else knows of yet.
        unsafe { host.cast::<u32>().write_volatile(0) };
        Ok(Self { host, device })
    }

    fn set(&self) {
        // SAFETY: four bytes of pinned memory, alive until `free`; the GPU only reads them.
        unsafe { self.host.cast::<u32>().write_volatile(1) };
    }

    fn free(self, player: &Player) -> Result<(), ClientError> {
        check("cuMemFreeHost", ask!(player.memory, cuMemFreeHost(self.host))?)
    }
}
