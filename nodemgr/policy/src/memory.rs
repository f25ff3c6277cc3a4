//! What a policy remembers of each tenant, by the tenant's number.

use crate::Sample;

/// One `T` per tenant, in the order of the samples. A tenant that goes is forgotten in the same tick, so that nothing is
/// left behind however many come and go (papers 1.5, weakness 6). The numbers stand apart, close together: most ticks
/// compare them and find nothing new.
pub struct Memory<T> {
    tenants: Vec<u64>,
    rows: Vec<T>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { tenants: Vec::new(), rows: Vec::new() }
    }
}

impl<T: Default> Memory<T> {
    /// Makes row `i` that of `samples[i]`. While the tenants stand still this moves and allocates nothing.
    pub fn follow(&mut self, samples: &[Sample]) {
        let mut pairs = self.tenants.iter().zip(samples);
        if self.tenants.len() == samples.len() && pairs.all(|(tenant, sample)| *tenant == sample.tenant) {
            return;
        }
        for (at, sample) in samples.iter().enumerate() {
            if self.tenants.get(at) == Some(&sample.tenant) {
                continue;
            }
            let found = self.tenants[at..].iter().position(|tenant| *tenant == sample.tenant);
            let from = found.map_or(self.tenants.len(), |ahead| at + ahead);
            if found.is_none() {
                self.tenants.push(sample.tenant);
                self.rows.push(T::default());
            }
            self.tenants.swap(at, from);
            self.rows.swap(at, from);
        }
        self.tenants.truncate(samples.len());
        self.rows.truncate(samples.len());
    }

    /// What is remembered of the tenant at this position.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.rows.get(at)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.rows.get_mut(at)
    }

    /// What is remembered, in the order of the samples.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.rows.iter()
    }

    /// All of it, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::tenant;

    fn follow(memory: &mut Memory<u64>, tenants: &[u64]) -> Vec<u64> {
        let samples: Vec<_> = tenants.iter().map(|id| Sample { tenant: *id, ..tenant() }).collect();
        memory.follow(&samples);
        let seen = memory.iter().copied().collect();
        memory.iter_mut().zip(tenants).for_each(|(row, id)| *row = *id);
        seen
    }

    #[test]
    fn each_tenant_finds_its_own_again_wherever_it_stands() {
        let mut memory = Memory::default();
        assert_eq!(follow(&mut memory, &[1, 2, 3]), [0, 0, 0]);
        assert_eq!(follow(&mut memory, &[3, 1, 4, 2]), [3, 1, 0, 2]);
        assert_eq!(follow(&mut memory, &[2]), [2]);
        assert_eq!(follow(&mut memory, &[1, 2]), [0, 2], "who went is forgotten");
    }

    #[test]
    fn tenants_that_come_and_go_leave_nothing_behind() {
        // papers 1.5, weakness 6: Dilu's slots leak after ten clients.
        let mut memory = Memory::default();
        for id in 0..1_000 {
            follow(&mut memory, &[id, id + 1]);
            assert_eq!(memory.rows.len(), 2);
        }
    }
}
