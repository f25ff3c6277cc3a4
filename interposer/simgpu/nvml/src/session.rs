//! The connection to the broker: opened by the first `nvmlInit`, closed by the last `nvmlShutdown`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_simgpu_link::books::{Books, Gpu};
use weir_simgpu_link::{Device, Kind, Session};

use crate::edge::{Answer, DRIVER_NOT_LOADED, INVALID_ARGUMENT, UNINITIALIZED, UNKNOWN};
use crate::{fault, process};

static OPEN: Mutex<Open> = Mutex::new(Open { session: None, references: 0 });

struct Open {
    session: Option<Arc<Session>>,
    references: usize,
}

/// Locks, whether or not a thread has died with the lock: what is inside is whole after every statement.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the session, or counts one more user of it.
///
/// # Errors
/// `DRIVER_NOT_LOADED` without a broker.
pub fn open() -> Answer {
    let mut open = locked(&OPEN);
    if open.session.is_none() {
        let session = Arc::new(Session::connect(Kind::Observer).map_err(|_| DRIVER_NOT_LOADED)?);
        fault::arm(session.config());
        process::begin(&session.books().map_err(|_| UNKNOWN)?);
        open.session = Some(session);
    }
    open.references += 1;
    Ok(())
}

/// Counts one user less; the last one closes the session.
///
/// # Errors
/// `UNINITIALIZED` when there was none.
pub fn close() -> Answer {
    let mut open = locked(&OPEN);
    open.references = open.references.checked_sub(1).ok_or(UNINITIALIZED)?;
    if open.references == 0 {
        open.session = None;
    }
    Ok(())
}

/// The session.
///
/// # Errors
/// `UNINITIALIZED`.
pub fn current() -> Answer<Arc<Session>> {
    locked(&OPEN).session.clone().ok_or(UNINITIALIZED)
}

/// A device as the broker described it.
pub fn device(place: usize) -> Answer<Device> {
    current()?.welcome().devices.get(place).cloned().ok_or(INVALID_ARGUMENT)
}

/// All books.
pub fn books() -> Answer<Books> {
    current()?.books().map_err(|_| UNKNOWN)
}

/// The books of one device.
pub fn gpu(place: usize) -> Answer<Gpu> {
    let mut gpus = books()?.gpus;
    if place < gpus.len() { Ok(gpus.swap_remove(place)) } else { Err(INVALID_ARGUMENT) }
}
