//! Launch attributes that a stream or a kernel node of a graph keeps. They change nothing here but what a query
//! answers: there are no caches and no sync domains to be set.

use weir_abi::types::*;

use crate::edge::Answer;

/// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`: two bytes, the domains of `default` and `remote`.
const MEM_SYNC_DOMAIN_MAP: CUlaunchAttributeID = 9;
/// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN`.
const MEM_SYNC_DOMAIN: CUlaunchAttributeID = 10;

/// A value as the caller's bytes: pointers in it are handed back, never followed.
pub type Value = [u8; 64];
const _: () = assert!(size_of::<CUlaunchAttributeValue>() == size_of::<Value>());

/// What streams keep.
pub const OF_STREAMS: &[CUlaunchAttributeID] = &[
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
    MEM_SYNC_DOMAIN_MAP,
    MEM_SYNC_DOMAIN,
];
/// What kernel nodes keep.
pub const OF_KERNEL_NODES: &[CUlaunchAttributeID] = &[
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    MEM_SYNC_DOMAIN_MAP,
    MEM_SYNC_DOMAIN,
];

/// The attributes of one stream or node.
#[derive(Clone, Default)]
pub struct Kept(Vec<(CUlaunchAttributeID, Value)>);

impl Kept {
    /// What was set, or the documented default.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for what is not among `known`.
    pub fn get(&self, known: &[CUlaunchAttributeID], id: CUlaunchAttributeID) -> Answer<Value> {
        check(known, id)?;
        Ok(self.0.iter().find(|kept| kept.0 == id).map_or_else(|| default_of(id), |kept| kept.1))
    }

    /// Sets one.
    ///
    /// # Errors
    /// As [`Kept::get`].
    pub fn set(&mut self, known: &[CUlaunchAttributeID], id: CUlaunchAttributeID, value: Value) -> Answer {
        check(known, id)?;
        self.0.retain(|kept| kept.0 != id);
        self.0.push((id, value));
        Ok(())
    }
}

fn check(known: &[CUlaunchAttributeID], id: CUlaunchAttributeID) -> Answer {
    if known.contains(&id) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Zero, but for the policy (automatic is 1) and the map (the remote domain is domain 1).
fn default_of(id: CUlaunchAttributeID) -> Value {
    let mut value = [0; 64];
    value[0] = u8::from(id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY);
    value[1] = u8::from(id == MEM_SYNC_DOMAIN_MAP);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_answered_and_else_the_default() {
        let mut kept = Kept::default();
        let of = |kept: &Kept, id| kept.get(OF_STREAMS, id);
        assert_eq!(of(&kept, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY).map(|value| value[0]), Ok(1));
        kept.set(OF_STREAMS, MEM_SYNC_DOMAIN, [7; 64]).expect("known");
        assert_eq!(of(&kept, MEM_SYNC_DOMAIN), Ok([7; 64]));
        assert_eq!(of(&kept, CU_LAUNCH_ATTRIBUTE_COOPERATIVE), Err(CUDA_ERROR_INVALID_VALUE));
    }
}
