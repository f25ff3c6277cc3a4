//! GPUs with share and memory: requests on one sum to at most all of it.

use weir_protocol::units::{Bytes, SmShare};

/// What is free on each GPU.
pub struct Pool {
    free: Vec<(u16, u64)>, // permille, bytes
}

impl Pool {
    /// So many empty GPUs.
    pub fn new(gpus: usize, memory: Bytes) -> Self {
        Self { free: vec![(SmShare::FULL.as_permille(), memory.0); gpus] }
    }

    /// Takes memory and as much as possible of `wanted`, at least `least`, on the fullest GPU that has it: one that has all
    /// that is wanted before one that has not.
    pub fn place(&mut self, wanted: SmShare, least: SmShare, memory: Bytes) -> Option<(usize, SmShare)> {
        let fits = |needed: SmShare| {
            let free = self.free.iter().enumerate();
            free.filter(|(_, free)| free.0 >= needed.as_permille() && free.1 >= memory.0)
                .min_by_key(|(index, free)| (free.0, free.1, *index))
                .map(|(index, _)| index)
        };
        let gpu = fits(wanted).or_else(|| fits(least))?;
        self.take(gpu, wanted, memory).map(|share| (gpu, share))
    }

    /// Takes memory, and as much as possible of `wanted`, on this GPU; nothing where the memory is not free.
    pub fn take(&mut self, gpu: usize, wanted: SmShare, memory: Bytes) -> Option<SmShare> {
        let free = &mut self.free[gpu];
        free.1 = free.1.checked_sub(memory.0)?;
        let share = wanted.as_permille().min(free.0);
        free.0 -= share;
        Some(SmShare::permille(share))
    }

    /// Changes a share on this GPU to as much as possible of `wanted`.
    pub fn resize(&mut self, gpu: usize, from: SmShare, wanted: SmShare) -> SmShare {
        let free = &mut self.free[gpu].0;
        let all = *free + from.as_permille();
        let share = wanted.as_permille().min(all);
        *free = all - share;
        SmShare::permille(share)
    }

    /// Gives back.
    pub fn give(&mut self, gpu: usize, share: SmShare, memory: Bytes) {
        self.free[gpu].0 += share.as_permille();
        self.free[gpu].1 += memory.0;
    }

    /// Share that is free on this GPU.
    pub fn free(&self, gpu: usize) -> SmShare {
        SmShare::permille(self.free[gpu].0)
    }
}
