//! User space on Linux: a [`LocalEpoch`] for each thread, and one queue of retired objects for the process.
//!
//! A thread registers its local epoch at its first pin, and unregisters the local epoch when the thread ends. If
//! the thread has guards at that moment (in thread-locals that are destroyed later, or leaked), the
//! local epoch stays, and the last guard unregisters it. A thread that pins without a local epoch (no memory for
//! one; the local epoch is unregistered already) is a stray: strays are counted in one word, and no memory
//! is freed while there are any.
//!
//! `membarrier` costs microseconds and reaches every processor that runs a thread of ours, so what
//! is retired is collected by the [`BATCH`]. Where the system does not have it (Linux before 4.14,
//! a sandbox, another system), readers bring a fence, as told by their local epoch. If the system refuses
//! it later, a thread of this library [visits all processors](super::heavy_fence) instead; retired
//! memory is freed by the first collection after the visit.

use crate::fallible::try_box;
use crate::garbage::{Garbage, Sealed, BATCH};
use crate::heavy_fence::{self, Processors, Thread};
use crate::heavy_fences::HeavyFences;
use crate::local_epoch::{before_fence, FencedUpTo, GlobalEpoch, LocalEpoch};
use crate::retired::Retired;
use crate::sync::atomic::{fence, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ptr::{self, NonNull};

static DOMAIN: Domain = Domain {
    global: GlobalEpoch::new(),
    participants: Mutex::new(Participants {
        registered: Vec::new(),
        fenced: None,
        process: 0,
        can_visit: false,
        reached: FencedUpTo::new(),
        visitor: Visitor::None,
        fences: HeavyFences { visited: 0, refused: 0 },
    }),
    is_wanted: Condvar::new(),
    strays: AtomicUsize::new(0),
    garbage: Mutex::new(Garbage::new()),
};

#[cfg(test)]
mod tests;

std::thread_local! {
    /// This thread's local epoch; null before its first pin and after its end. No destructor, so that asking costs nothing.
    static LOCAL: Cell<*const LocalEpoch> = const { Cell::new(ptr::null()) };
    /// Takes the local epoch back.
    static END: End = const { End };
}

struct Domain {
    global: GlobalEpoch,
    participants: Mutex<Participants>,
    /// [`Visitor::Wanted`], to the visitor.
    is_wanted: Condvar,
    /// Participants without a local epoch.
    strays: AtomicUsize,
    /// GlobalEpoch moves on under this lock.
    garbage: Mutex<Garbage>,
}

struct Participants {
    registered: Vec<Registered>,
    /// Must readers bring fences? `None` until the first asks.
    fenced: Option<bool>,
    /// The id of the process at the first pin. The child of a fork has another.
    process: u32,
    /// [`heavy_fence::can_visit`], at the first pin.
    can_visit: bool,
    reached: FencedUpTo,
    visitor: Visitor,
    fences: HeavyFences,
}

struct Registered {
    local: *const LocalEpoch,
    /// `None`: the thread has ended, and left guards.
    thread: Option<Thread>,
}

/// The state of the thread that visits processors when `membarrier` is refused.
#[derive(Clone, Copy, PartialEq)]
enum Visitor {
    /// Not needed so far, or it could not be spawned.
    None,
    /// The thread sleeps or visits, and no other visit is wanted.
    Idle,
    /// A visit is wanted that begins from now on.
    Wanted,
}

// SAFETY: local epochs are live while they are here, and what may be done through a shared one is what `LocalEpoch` allows any thread.
unsafe impl Send for Participants {}

/// That of guards without one.
static STRAY: LocalEpoch = LocalEpoch::shared();

/// Proof that the thread is inside the read side.
pub(crate) struct Guard {
    local: NonNull<LocalEpoch>,
}

/// Enters the read side.
#[inline]
pub(crate) fn pin() -> Guard {
    let Some(local) = NonNull::new(LOCAL.get().cast_mut()) else { return pin_slow() };
    // SAFETY: `LOCAL` is null or leads to a live local epoch: `unregister`, which frees it, sets `LOCAL` to
    // null.
    unsafe { local.as_ref() }.enter(&DOMAIN.global);
    Guard { local }
}

#[cold]
fn pin_slow() -> Guard {
    if let Some(local) = DOMAIN.register() {
        // SAFETY: the local epoch was registered just now, and is freed by this thread's `END` or last
        // guard, which come later.
        unsafe { local.as_ref() }.enter(&DOMAIN.global);
        return Guard { local };
    }
    // Relaxed: ordered by the fence.
    crate::guard_overflow::check_guards(DOMAIN.strays.fetch_add(1, Ordering::Relaxed));
    // SeqCst: between the count and what the reader follows; meets the heavy fence, as a local epoch's light one does.
    fence(Ordering::SeqCst);
    Guard { local: NonNull::from_ref(&STRAY) }
}

/// A moment, after which readers are waited for.
#[derive(Clone, Debug)]
pub struct GracePeriod(u64);

/// Starts a grace period. What was made unreachable before this call, inside the read side, by this thread or under a lock that it
/// took since, may be freed once [`poll`](GracePeriod::poll) returns true. O(1), a lock.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GracePeriod {
    let _garbage = DOMAIN.garbage.lock();
    let stamp = DOMAIN.global.stamp();
    DOMAIN.global.advance(stamp);
    GracePeriod(stamp)
}

impl GracePeriod {
    /// Can [`poll`](Self::poll) be asked without a heavy fence, because somebody has run one since?
    pub fn is_fenced(&self) -> bool {
        DOMAIN.has_fence(self.0)
    }

    /// Has every reader left that was inside then? Never true for a thread that is inside itself since then. A heavy fence the
    /// first time, then O(threads).
    #[doc(alias = "poll_state_synchronize_rcu")]
    pub fn poll(&self) -> bool {
        DOMAIN.is_reached(self.0)
    }
}

/// Frees what can be freed, without waiting for a batch.
#[doc(alias = "rcu_barrier")]
pub fn flush() {
    DOMAIN.collect();
}

impl Guard {
    /// Frees what is behind `ptr` once every reader that may have seen it is gone. Needs no memory.
    ///
    /// # Safety
    ///
    /// `ptr` is what [`Retired::free`] frees, is unreachable for readers that pin from now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let mut garbage = DOMAIN.garbage.lock();
        // SAFETY: it is retired, says the caller.
        unsafe { garbage.queues.push(ptr) };
        if (T::IS_LARGE || garbage.is_due()) && !is_stray(self.local) {
            // Not now: as long as we are inside, it would wait for ourselves.
            self.local().set_collect_pending();
        }
    }

    #[inline]
    fn local(&self) -> &LocalEpoch {
        // SAFETY: a guard does not leave its thread (it has a raw pointer), whose local epoch lives as long as its guards; and `STRAY` stays.
        unsafe { self.local.as_ref() }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if !self.local().leave() {
            leave_further(self.local);
        }
    }
}

/// What a guard with this local epoch does that is not the last of its thread, or not all there is to do. Not a guard's method, so that guards
/// need not be in memory.
#[cold]
fn leave_further(local: NonNull<LocalEpoch>) {
    if is_stray(local) {
        // Release: meets the Acquire in `is_reached`.
        DOMAIN.strays.fetch_sub(1, Ordering::Release);
        return;
    }
    // SAFETY: a guard does not leave its thread, and `END` leaves the local epoch alone while the thread
    // has guards.
    let duties = unsafe { local.as_ref() }.leave_further();
    if duties.unregister {
        // SAFETY: the local epoch is this thread's, and `has_ended` is set for the last guard only.
        unsafe { DOMAIN.unregister(local.as_ptr()) };
    }
    if duties.collect_pending {
        DOMAIN.collect();
    }
}

/// Returns the counts for [`super::heavy_fences`].
pub(crate) fn heavy_fences() -> HeavyFences {
    DOMAIN.participants.lock().fences
}

fn is_stray(local: NonNull<LocalEpoch>) -> bool {
    ptr::eq(local.as_ptr(), &STRAY)
}

// === impl Domain ===

impl Domain {
    /// A local epoch for this thread; none without memory, or when the thread is ending.
    fn register(&self) -> Option<NonNull<LocalEpoch>> {
        let mut participants = self.participants.lock();
        let fenced = participants.is_fenced();
        participants.registered.try_reserve(1).ok()?;
        let local = try_box(LocalEpoch::new(fenced))?;
        END.try_with(|_| ()).ok()?;
        let local = NonNull::from(Box::leak(local));
        participants.registered.push(Registered { local: local.as_ptr(), thread: Some(heavy_fence::thread()) });
        LOCAL.set(local.as_ptr());
        Some(local)
    }

    /// Unregisters the calling thread's local epoch, and frees it.
    ///
    /// # Safety
    ///
    /// The local epoch is the calling thread's, which has no guards.
    unsafe fn unregister(&self, local: *const LocalEpoch) {
        LOCAL.set(ptr::null());
        self.participants.lock().registered.retain(|other| other.local != local);
        // SAFETY: `register` got the pointer from a box. `LOCAL`, the readers and (by this
        // function's clause) guards no longer lead to the local epoch, so no other call frees or uses it.
        drop(unsafe { Box::from_raw(local.cast_mut()) });
    }

    /// Keeps the calling thread's local epoch registered for guards that outlive the thread.
    fn keep(&self, local: *const LocalEpoch) {
        let mut participants = self.participants.lock();
        let kept = participants.registered.iter_mut().find(|other| other.local == local);
        // The id of a thread that has ended may become that of another thread.
        kept.expect("a local is registered until it is freed").thread = None;
    }

    fn collect(&'static self) {
        let (mut earlier, mut later) = {
            let mut garbage = self.garbage.lock();
            if garbage.queues.len() == 0 && garbage.sealed.is_none() {
                return;
            }
            let stamp = self.global.stamp();
            self.global.advance(stamp);
            garbage.due_at = BATCH;
            (garbage.sealed.take(), Sealed { queues: garbage.queues.take(), stamp })
        };
        // The later stamp first: its fence serves both.
        if self.is_reached(later.stamp) {
            if let Some(earlier) = earlier {
                later.queues.append(earlier.queues);
            }
            // SAFETY: the things were unreachable when time moved on, and by `is_reached` every
            // reader inside came in later.
            unsafe { later.queues.free() };
            return;
        }
        let is_past = |sealed: &mut Sealed| self.has_fence(sealed.stamp) && self.is_reached(sealed.stamp);
        let gone = earlier.take_if(is_past);
        self.garbage.lock().put_back(earlier, later);
        if let Some(gone) = gone {
            // SAFETY: the things were unreachable at their stamp, and by `is_reached` every reader
            // inside came in later.
            unsafe { gone.queues.free() };
        }
    }

    /// Has a heavy fence begun after time moved on from `stamp`?
    fn has_fence(&self, stamp: u64) -> bool {
        self.participants.lock().reached.has(stamp)
    }

    /// Has every reader left, or come in, after what is stamped so was unreachable? A heavy fence, unless one came later than the stamp.
    fn is_reached(&'static self, stamp: u64) -> bool {
        let mut participants = self.participants.lock();
        let fenced = participants.fenced;
        let heavy_fence = || {
            // SeqCst: the heavy fence, as the local epochs' table has it; enough by itself where readers bring theirs, and for strays.
            fence(Ordering::SeqCst);
            fenced != Some(false) || heavy_fence::run()
        };
        if !participants.reached.reach(stamp, &self.global, heavy_fence) {
            self.want_visit(&mut participants);
            return false;
        }
        // Acquire: meets the Release of a stray's end.
        self.strays.load(Ordering::Acquire) == 0
            // SAFETY: local epochs are live while they are registered, and the lock is held.
            && participants.registered.iter().all(|other| unsafe { &*other.local }.is_quiescent_since(stamp))
    }

    /// Wakes the visitor, as `membarrier` was refused. The visit serves a later call of
    /// [`is_reached`](Self::is_reached).
    #[cold]
    fn want_visit(&'static self, participants: &mut Participants) {
        // In the child of a fork there is no visitor, and the thread ids are those of the parent.
        if !participants.can_visit || participants.process != std::process::id() {
            participants.fences.refused += 1;
            return;
        }
        if participants.visitor == Visitor::None {
            // The new thread waits for the readers' lock, which is held here.
            let visitor = std::thread::Builder::new().name("lowwater-fence".into()).spawn(|| self.visit_for_ever());
            if visitor.is_err() {
                participants.fences.refused += 1;
                return;
            }
        }
        participants.visitor = Visitor::Wanted;
        self.is_wanted.notify_one();
    }

    /// The visitor.
    fn visit_for_ever(&self) -> ! {
        loop {
            let mut participants = self.participants.lock();
            while participants.visitor != Visitor::Wanted {
                self.is_wanted.wait(&mut participants);
            }
            participants.visitor = Visitor::Idle;
            let now = before_fence(&self.global);
            let mut processors = Processors::new();
            let mut threads = participants.registered.iter().filter_map(|other| other.thread);
            let are_known = threads.all(|thread| processors.add(thread));
            drop(participants);
            // SeqCst: the heavy fence for strays, as in `is_reached`.
            fence(Ordering::SeqCst);
            let has_visited = are_known && processors.visit();
            let mut participants = self.participants.lock();
            if has_visited {
                participants.fences.visited += 1;
                participants.reached.complete(now);
            } else {
                participants.fences.refused += 1;
            }
        }
    }
}

impl Participants {
    /// Must readers bring fences? The first call registers for `membarrier`.
    fn is_fenced(&mut self) -> bool {
        *self.fenced.get_or_insert_with(|| {
            let fenced = !heavy_fence::register();
            self.process = std::process::id();
            self.can_visit = !fenced && heavy_fence::can_visit();
            fenced
        })
    }
}

/// The thread's end.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let local = LOCAL.get();
        // SAFETY: `LOCAL` is null or leads to this thread's live local epoch: `unregister`, which frees it,
        // sets `LOCAL` to null.
        let Some(epoch) = (unsafe { local.as_ref() }) else { return };
        if epoch.end_thread() {
            // SAFETY: the local epoch is this thread's, and `end_thread` returned that the thread has no
            // guards.
            unsafe { DOMAIN.unregister(local) };
        } else {
            DOMAIN.keep(local);
        }
    }
}
