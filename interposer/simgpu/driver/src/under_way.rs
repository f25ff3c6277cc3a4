//! Words that streams of this process have been told to write, and have not come to: nobody may judge a wait for one of
//! them before its own stream comes there.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::locked;
use crate::work::{MemoryOperation, Work};

/// Addresses, and how many writes each is to have.
static WORDS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// The words that some work writes; they are under way until this is dropped.
pub struct Writing(Vec<u64>);

impl Writing {
    /// Those of this work, from now on.
    pub fn of(work: &Work) -> Self {
        let addresses: Vec<u64> = match work {
            Work::Memory(operations) => operations.iter().filter_map(written).collect(),
            _ => Vec::new(),
        };
        let mut words = locked(&WORDS);
        for address in &addresses {
            *words.entry(*address).or_default() += 1;
        }
        Self(addresses)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut words = locked(&WORDS);
        for address in &self.0 {
            if let Some(count) = words.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    words.remove(address);
                }
            }
        }
    }
}

fn written(operation: &MemoryOperation) -> Option<u64> {
    match operation {
        MemoryOperation::Write { address, .. } => Some(*address),
        MemoryOperation::Wait { .. } => None,
    }
}

/// Whether a stream is yet to write this word.
pub fn is_to_be_written(address: u64) -> bool {
    locked(&WORDS).contains_key(&address)
}
