//! Handles: numbers that stand for our objects, checked at every use.
//!
//! A handle is no pointer, so that a wrong one is refused instead of followed. Objects are allocated once and
//! never freed: a reference stays good through any race of a use with a destroy, and a look-up takes no lock
//! (two loads). What is left of a destroyed object is some hundred bytes, which a process that creates
//! thousands can afford. Events come by the million: those are revived under their old handle, as a driver
//! reuses an address.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_abi::types::*;

use crate::edge::Answer;

const CHUNK: usize = 4096;
const CHUNKS: usize = 1024;
/// Handles start here: outside every address that a process can map.
const BASE: usize = 0x7eed << 48;
const KIND_SHIFT: u32 = 40;
const INDEX_SHIFT: u32 = 4;

/// A handle as our objects keep it: a number, typed as the pointer that the driver API makes of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Handle(*mut c_void);

// SAFETY: a number in a pointer's clothes: nobody follows it, here or in a client.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// As the driver API passes it.
    pub fn raw(self) -> *mut c_void {
        self.0
    }
}

struct Entry<T> {
    value: T,
    alive: AtomicBool,
}

type Chunk<T> = Box<[OnceLock<Entry<T>>]>;

/// All objects of one kind.
pub struct Registry<T: 'static> {
    kind: usize,
    /// What a wrong handle of this kind is answered with.
    refusal: CUresult,
    next: AtomicUsize,
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
}

impl<T> Registry<T> {
    /// An empty registry; `kind` tells its handles from those of the others.
    pub const fn new(kind: usize, refusal: CUresult) -> Self {
        Registry { kind, refusal, next: AtomicUsize::new(0), chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Takes an object in.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` when the kind's 4 million handles are used up.
    pub fn insert(&'static self, value: T) -> Answer<(Handle, &'static T)> {
        self.insert_with(|_| value)
    }

    /// Takes in an object that knows its own handle.
    ///
    /// # Errors
    /// As [`Registry::insert`].
    pub fn insert_with(&'static self, make: impl FnOnce(Handle) -> T) -> Answer<(Handle, &'static T)> {
        // Relaxed: only the number's uniqueness matters; the entry itself is published by its OnceLock.
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let chunk = self.chunks.get(index / CHUNK).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let number = BASE | self.kind << KIND_SHIFT | (index + 1) << INDEX_SHIFT;
        let handle = Handle(ptr::without_provenance_mut(number));
        let entry =
            chunk[index % CHUNK].get_or_init(|| Entry { value: make(handle), alive: AtomicBool::new(true) });
        Ok((handle, &entry.value))
    }

    /// The object behind a handle.
    ///
    /// # Errors
    /// The registry's own code when the handle is of another kind, was never given out, or is destroyed.
    pub fn get(&'static self, handle: *mut c_void) -> Answer<&'static T> {
        let entry = self.entry(handle).ok_or(self.refusal)?;
        // Acquire pairs with the Release in `remove`: what the remover did is seen with the refusal.
        if entry.alive.load(Ordering::Acquire) { Ok(&entry.value) } else { Err(self.refusal) }
    }

    /// Ends a handle; the object itself stays readable for whoever still holds it.
    ///
    /// # Errors
    /// As [`Registry::get`]; of two threads that remove the same handle one gets the error.
    pub fn remove(&'static self, handle: *mut c_void) -> Answer<&'static T> {
        let entry = self.entry(handle).ok_or(self.refusal)?;
        if entry.alive.swap(false, Ordering::AcqRel) { Ok(&entry.value) } else { Err(self.refusal) }
    }

    /// Makes a removed handle good again, for an object that is used anew.
    pub fn revive(&'static self, handle: *mut c_void) {
        if let Some(entry) = self.entry(handle) {
            entry.alive.store(true, Ordering::Release);
        }
    }

    /// Every living object, in the order of their making.
    pub fn living(&'static self) -> impl Iterator<Item = &'static T> {
        let made = self.next.load(Ordering::Acquire);
        (0..made).filter_map(|index| {
            let entry = self.chunks.get(index / CHUNK)?.get()?[index % CHUNK].get()?;
            entry.alive.load(Ordering::Acquire).then_some(&entry.value)
        })
    }

    /// The same, each with its handle.
    pub fn with_handles(&'static self) -> impl Iterator<Item = (Handle, &'static T)> {
        let made = self.next.load(Ordering::Acquire);
        (0..made).filter_map(|index| {
            let number = BASE | self.kind << KIND_SHIFT | (index + 1) << INDEX_SHIFT;
            let handle = ptr::without_provenance_mut(number);
            self.get(handle).ok().map(|value| (Handle(handle), value))
        })
    }

    fn entry(&'static self, handle: *mut c_void) -> Option<&'static Entry<T>> {
        let offset = handle.addr().checked_sub(BASE | self.kind << KIND_SHIFT)?;
        let index = (offset >> INDEX_SHIFT).checked_sub(1)?;
        self.chunks.get(index / CHUNK)?.get()?[index % CHUNK].get()
    }
}
