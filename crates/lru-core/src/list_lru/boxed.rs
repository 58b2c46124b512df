//! Memory that may be refused. See [`fallible`](crate::fallible).

use alloc::alloc::alloc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::alloc::Layout;

/// [`Box::new`], with `None` instead of an abort where there is no memory.
pub fn try_box<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() != 0, "the allocator is not asked for nothing") };
    #[cfg(test)]
    if fault::is_now() {
        return None;
    }
    // SAFETY: the layout's size is not 0.
    let raw = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if raw.is_null() {
        return None;
    }
    // SAFETY: `raw` is fresh memory of the layout of `T`.
    unsafe { raw.write(value) };
    // SAFETY: `raw` came from the global allocator with the layout of `T`, and holds a `T`.
    Some(unsafe { Box::from_raw(raw) })
}

/// An empty vector with room for so many.
pub(super) fn try_vec<T>(capacity: usize) -> Option<Vec<T>> {
    #[cfg(test)]
    if fault::is_now() {
        return None;
    }
    let mut room = Vec::new();
    room.try_reserve_exact(capacity).ok()?;
    Some(room)
}

/// Refusals for tests, on the thread that asks for them.
#[cfg(test)]
pub(super) mod fault {
    extern crate std;
    use core::cell::Cell;

    // In a model check too: nobody is refused there, and its threads are one.
    std::thread_local! { static AFTER: Cell<Option<usize>> = const { Cell::new(None) }; }

    /// Runs `f`, in which so many are not refused and then one is. Says whether it came to that.
    #[cfg(not(lowwater_loom))]
    pub(in crate::list_lru) fn after<R>(n: usize, f: impl FnOnce() -> R) -> (R, bool) {
        AFTER.set(Some(n));
        let result = f();
        (result, AFTER.take().is_none())
    }

    pub(in crate::list_lru) fn is_now() -> bool {
        let after = AFTER.get();
        AFTER.set(after.and_then(|n| n.checked_sub(1)));
        after == Some(0)
    }
}
