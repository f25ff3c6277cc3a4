//! User objects: what a client ties to the life of its graphs, with a count of references and a destructor.

use std::ffi::*;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_abi::types::*;

use super::of;
use crate::api::Driver;
use crate::edge::{Answer, put};
use crate::locked;
use crate::registry::Registry;

static OBJECTS: Registry<UserObject> = Registry::new(15, CUDA_ERROR_INVALID_VALUE);
/// Flag of `cuGraphRetainUserObject`: the caller's references become the graph's.
const MOVE: c_uint = 1;

/// A user object.
pub struct UserObject {
    references: AtomicUsize,
    destroy: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: the data pointer is the client's, handed back to its destructor unread.
unsafe impl Send for UserObject {}
// SAFETY: as above; the count is atomic.
unsafe impl Sync for UserObject {}

/// References that a graph holds; given back when this is dropped.
pub struct Held {
    object: &'static UserObject,
    count: usize,
}

impl Clone for Held {
    /// Another graph holds the object too: with one reference, however many the first has.
    fn clone(&self) -> Self {
        self.object.references.fetch_add(1, Ordering::Relaxed);
        Held { object: self.object, count: 1 }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A count that is too small is the client's error, and its graph is gone already.
        let _told = self.object.release(self.count);
    }
}

impl UserObject {
    fn release(&self, count: usize) -> Answer {
        let take = |have: usize| have.checked_sub(count);
        // AcqRel: what every holder did with the object comes before its destructor.
        let before = self.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        if before.map_err(|_| CUDA_ERROR_INVALID_VALUE)? == count {
            // SAFETY: the client passed both to be called together when the last reference goes.
            unsafe { (self.destroy)(self.data) };
        }
        Ok(())
    }
}

impl Driver {
    pub fn cuUserObjectCreate(
        out: *mut CUuserObject,
        data: *mut c_void,
        destroy: CUhostFn,
        references: c_uint,
        _flags: c_uint,
    ) -> Answer {
        let destroy = destroy.filter(|_| references > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let references = AtomicUsize::new(references as usize);
        put(out, OBJECTS.insert(UserObject { references, destroy, data })?.0.raw())
    }

    pub fn cuUserObjectRetain(object: CUuserObject, count: c_uint) -> Answer {
        OBJECTS.get(object)?.references.fetch_add(count as usize, Ordering::Relaxed);
        Ok(())
    }

    pub fn cuUserObjectRelease(object: CUuserObject, count: c_uint) -> Answer {
        OBJECTS.get(object)?.release(count as usize)
    }

    pub fn cuGraphRetainUserObject(
        graph: CUgraph,
        object: CUuserObject,
        count: c_uint,
        flags: c_uint,
    ) -> Answer {
        let (graph, object, count) = (of(graph)?, OBJECTS.get(object)?, count as usize);
        if flags & MOVE == 0 {
            object.references.fetch_add(count, Ordering::Relaxed);
        }
        locked(&graph.objects).push(Held { object, count });
        Ok(())
    }

    pub fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) -> Answer {
        let (graph, object) = (of(graph)?, OBJECTS.get(object)?);
        let mut objects = locked(&graph.objects);
        let is_it = |held: &Held| std::ptr::eq(held.object, object) && held.count == count as usize;
        let place = objects.iter().position(is_it).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        drop(objects.swap_remove(place));
        Ok(())
    }
}
