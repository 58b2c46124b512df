//! The stripes of a slab: one at first, one for each few threads when it is worth it.

use super::stripe::Stripe;
use crate::fallible::{try_box, try_slice};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::Mutex;
use alloc::boxed::Box;
use core::ptr;
use crossbeam_utils::CachePadded;

/// At most so many.
const MAX: usize = 64;

struct More {
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
    /// Never changes: so that a model check sees who comes before they are published.
    #[cfg(lowwater_loom)]
    made: crate::sync::UnsafeCell<()>,
}

pub(super) struct Stripes {
    first: Mutex<Stripe>,
    /// The others; null until there are some.
    more: AtomicPtr<More>,
}

impl Stripes {
    pub(super) fn new() -> Self {
        Self { first: Mutex::new(Stripe::new()), more: AtomicPtr::new(ptr::null_mut()) }
    }

    /// That of this thread.
    #[inline]
    pub(super) fn here(&self) -> &Mutex<Stripe> {
        match self.more() {
            None => &self.first,
            Some(stripes) => &stripes[thread_number() & (stripes.len() - 1)],
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Mutex<Stripe>> {
        core::iter::once(&self.first).chain(self.more().into_iter().flatten().map(|stripe| &**stripe))
    }

    #[inline]
    fn more(&self) -> Option<&[CachePadded<Mutex<Stripe>>]> {
        // Acquire: meets the Release in `spread`, so that the stripes are seen as they were made.
        let more = self.more.load(Ordering::Acquire);
        // SAFETY: once set, it stays until this is dropped.
        let more = (!more.is_null()).then(|| unsafe { &*more })?;
        #[cfg(lowwater_loom)]
        more.made.with(|_| ());
        Some(&more.stripes)
    }

    /// Makes the others, if they are not there and there is memory. What is in the first stays there until somebody collects.
    ///
    /// For who has the slab and holds the pool's lock: beside the slab's end somebody could find stripes that nobody closes.
    pub(super) fn spread(&self) {
        if self.more().is_some() {
            return;
        }
        let nr = (2 * crate::topology::cpu::allowed()).next_power_of_two().min(MAX);
        // Without memory threads meet in the first; the next chunk asks again.
        let Some(stripes) = try_slice(nr, |_| CachePadded::new(Mutex::new(Stripe::new()))) else { return };
        let more = More {
            stripes,
            #[cfg(lowwater_loom)]
            made: crate::sync::UnsafeCell::new(()),
        };
        let Some(more) = try_box(more) else { return };
        // Release: meets the Acquire in `more`. Nobody else stores: the pool's lock is held.
        let ordering = if crate::mutated!("stripes_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.more.store(Box::into_raw(more), ordering);
    }

    pub(super) fn footprint(&self) -> usize {
        self.more().map_or(0, |more| size_of::<More>() + size_of_val(more))
    }
}

impl Drop for Stripes {
    fn drop(&mut self) {
        if cfg!(any(debug_assertions, lowwater_loom)) {
            assert!(self.all().all(|stripe| stripe.try_lock().is_some()), "nobody holds a stripe that goes");
        }
        // Relaxed: we have the only access.
        let more = self.more.load(Ordering::Relaxed);
        if !more.is_null() {
            // SAFETY: it came from a box, and nobody else has access.
            drop(unsafe { Box::from_raw(more) });
        }
    }
}

/// A number that threads which run at the same time rarely share.
#[cfg(all(feature = "std", not(lowwater_loom)))]
#[inline]
fn thread_number() -> usize {
    use crate::sync::atomic::AtomicUsize;
    use core::cell::Cell;
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    std::thread_local! { static HERE: Cell<usize> = const { Cell::new(0) }; }
    let number = HERE.get();
    if number != 0 {
        return number;
    }
    // Relaxed: a number of one's own, and nothing else.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    HERE.set(number);
    number
}

#[cfg(any(not(feature = "std"), lowwater_loom))]
fn thread_number() -> usize {
    crate::topology::cpu::hint()
}
