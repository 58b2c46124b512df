//! The read side for systems without `membarrier`: crossbeam-epoch.
//!
//! Same interface as the other backends (`guard.rs` names them), without `heavy_fences`.
//! crossbeam-epoch may abort without memory, and frees later than the others, so tests that count
//! frees or fail allocations are left out with `--cfg lowwater_epoch`.
//!
//! crossbeam-epoch makes deferred calls in any pin and flush, but [`start_poll`] and
//! [`GracePeriod::poll`] are called under locks of slabs, for which a destructor may wait. So a
//! deferred call moves its object to [`READY`], and objects are freed from there when a thread
//! drops its last guard, which a flush does as well. That bounds the delay: an object is ready
//! until the next such drop on any thread, usually the one whose pin or flush made it ready. The
//! collector is not crossbeam-epoch's default one, whose deferred calls are those of hash chains
//! and of other crates.
//!
//! A change of the interface must be made in all backends. A change must ensure that no deferred
//! call runs a destructor.

use crate::retired::Retired;
use crate::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::Cell;
use core::ptr;
use crossbeam_epoch::{Collector, LocalHandle};
use std::sync::OnceLock;

std::thread_local! {
    /// This thread's registration with the collector.
    static HANDLE: LocalHandle = collector().register();
    /// The number of this thread's guards, and one more while it frees objects. Without a
    /// destructor, so that it can be used until the thread's end.
    static GUARDS: Cell<usize> = const { Cell::new(0) };
}

/// Objects whose grace period is over: a stack, from which all objects are taken at once.
static READY: AtomicPtr<Ready> = AtomicPtr::new(ptr::null_mut());

/// An object that is [ready](READY) to be freed, or will be after its grace period.
struct Ready {
    object: *mut (),
    /// [`Retired::free`] of the object's type, by its [kind](Retired::kind).
    free: unsafe fn(*mut ()),
    next: *mut Ready,
}

/// A guard as it is counted in [`GUARDS`]. The drop of the thread's last one frees objects.
struct Counted;

/// Proof that the thread is inside the read side. The fields are dropped in this order, so objects
/// are freed outside of the read side.
pub(crate) struct Guard(crossbeam_epoch::Guard, Counted);

fn collector() -> &'static Collector {
    static COLLECTOR: OnceLock<Collector> = OnceLock::new();
    COLLECTOR.get_or_init(Collector::new)
}

/// Enters the read side without counting a guard. A thread whose locals are destroyed is registered
/// for this one guard.
#[inline]
fn enter() -> crossbeam_epoch::Guard {
    HANDLE.try_with(LocalHandle::pin).unwrap_or_else(|_| collector().register().pin())
}

/// Enters the read side. Cheap when the thread is inside already.
#[inline]
pub(crate) fn pin() -> Guard {
    Guard(enter(), Counted::new())
}

/// Enters the read side; never `None`.
#[inline]
pub(crate) fn try_pin() -> Option<Guard> {
    Some(pin())
}

/// A cookie for a grace period.
#[derive(Clone, Debug)]
pub struct GracePeriod(Arc<AtomicBool>);

/// Starts a grace period.
///
/// An object may be freed once [`poll`](GracePeriod::poll) returns true, if it was made unreachable
/// before this call, by a thread that was inside the read side. If another thread made it
/// unreachable, that thread must have done so under a lock which this thread has taken afterwards.
/// Allocates, and runs no destructor of a retired object.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GracePeriod {
    let past = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&past);
    let guard = enter();
    // Release: pairs with the Acquire in `poll`.
    guard.defer(move || theirs.store(true, Ordering::Release));
    guard.flush();
    GracePeriod(past)
}

impl GracePeriod {
    /// Returns whether [`poll`](Self::poll) can be called without a fence on every processor.
    /// Always true: `poll` runs a fence on this processor only.
    pub fn is_fenced(&self) -> bool {
        true
    }

    /// Returns whether all readers that were inside when the grace period started have left. May
    /// return false for some time after they have left. Runs no destructor of a retired object.
    #[doc(alias = "poll_state_synchronize_rcu")]
    pub fn poll(&self) -> bool {
        // The collector advances its epoch only when threads pin.
        enter().flush();
        // Acquire: pairs with the Release in `start_poll`.
        self.0.load(Ordering::Acquire)
    }
}

/// Hands this thread's retired objects to the collector, and frees objects whose grace period is
/// over, unless the thread has a guard. Unlike Linux' `rcu_barrier`, waits for no grace period.
#[doc(alias = "rcu_barrier")]
pub fn flush() {
    pin().0.flush();
}

impl Guard {
    /// Frees `ptr` once every reader that may have seen it has left. A panic of its destructor is
    /// caught.
    ///
    /// # Safety
    ///
    /// `ptr` is an object that [`Retired::free`] can free, is unreachable for readers that pin from
    /// now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let ready = Ready { object: ptr.cast(), free: T::kind().free, next: ptr::null_mut() };
        let ready = Box::into_raw(Box::new(ready));
        let call = move || {
            // SAFETY: the box is pushed once, by this call, which the collector makes after the
            // grace period of the object.
            unsafe { push(ready) };
        };
        // SAFETY: `call` may run on another thread, and a `Retired` is `Send`. The closure borrows
        // nothing.
        unsafe { self.0.defer_unchecked(call) };
    }
}

/// Pushes an object to [`READY`].
///
/// # Safety
///
/// `ready` is from `Box::into_raw`, is pushed once, and the grace period of its object is over.
unsafe fn push(ready: *mut Ready) {
    // Relaxed: the pointer is only stored and compared.
    let mut first = READY.load(Ordering::Relaxed);
    loop {
        // SAFETY: the box is this call's until it is in `READY` (this function's clause).
        unsafe { (*ready).next = first };
        // Release: pairs with the Acquire in `Counted::drop`, so that the thread that frees the
        // object sees its links and all that its readers did.
        match READY.compare_exchange_weak(first, ready, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => first = other,
        }
    }
}

impl Counted {
    fn new() -> Self {
        // Wrapping: after so many leaked guards, an object may be freed while the thread has one.
        GUARDS.set(GUARDS.get().wrapping_add(1));
        Self
    }
}

impl Drop for Counted {
    /// Frees the objects that are ready, if this is the thread's last guard. Objects that become
    /// ready meanwhile wait for the next such drop, on any thread.
    fn drop(&mut self) {
        // Relaxed: only a hint, so that most drops write to no shared cache line. The thread sees
        // its own pushes.
        if GUARDS.get() == 1 && !READY.load(Ordering::Relaxed).is_null() {
            // Acquire: pairs with the Release in `push`.
            let mut next = READY.swap(ptr::null_mut(), Ordering::Acquire);
            while !next.is_null() {
                // SAFETY: each pointer in `READY` is from `Box::into_raw` (clause of `push`), and
                // only this call has taken it.
                let ready = *unsafe { Box::from_raw(next) };
                next = ready.next;
                // A panic would leak the other objects.
                lowwater_base::unwind::caught(|| {
                    // SAFETY: the object's grace period is over (clause of `push`), and `free` is
                    // that of its type, which `retire` stored.
                    unsafe { (ready.free)(ready.object) };
                });
            }
        }
        // After the calls above: of nested drops only the outermost frees, so that the stack stays
        // flat.
        GUARDS.set(GUARDS.get().wrapping_sub(1));
    }
}
