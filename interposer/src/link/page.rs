//! A shared page that another one may take the place of, under whoever reads it: that of a process which kept its own limits
//! until a manager came.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, Ordering};

use weir_protocol::mapping::Mapped;

/// A page. The pages whose place it took stay mapped: another thread may be in the middle of one.
pub struct Page<P: 'static>(AtomicPtr<P>);

impl<P> Page<P> {
    /// A page, mapped for as long as the process lives.
    pub fn new(page: Mapped<P>) -> Self {
        Self(AtomicPtr::new(leak(page)))
    }

    /// Puts `next` in its place.
    pub fn exchange(&self, next: Mapped<P>) {
        // Release: whoever finds the page finds what was written before, the process's slot on it.
        self.0.store(leak(next), Ordering::Release);
    }

    /// The page that is there now, and stays mapped.
    #[inline]
    pub fn current(&self) -> &'static P {
        // SAFETY: it came from `leak`, and pages are atomics throughout.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }
}

fn leak<P>(page: Mapped<P>) -> *mut P {
    let page = ManuallyDrop::new(page);
    std::ptr::from_ref::<P>(&page).cast_mut()
}

impl<P> Deref for Page<P> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        self.current()
    }
}
