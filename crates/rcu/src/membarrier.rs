//! User space on Linux: a [`LocalEpoch`] for each thread, and one queue of retired objects for the
//! process.
//!
//! A thread registers its local epoch at its first pin, and unregisters it when the thread ends. If
//! the thread has guards at that moment (in thread-locals that are destroyed later, or leaked), the
//! local epoch stays, and the last guard unregisters it. A thread that pins without a local epoch
//! (there was no memory for one, or it is unregistered already) is a stray: strays are counted in
//! one word, and no memory is freed while there are any.
//!
//! `membarrier` costs microseconds and interrupts every processor that runs a thread of the
//! process, so retired objects are collected in batches of [`BATCH`]. Where the system does not
//! have it (Linux before 4.14, a sandbox, an emulation of Linux), readers execute a fence, as their
//! local epoch's state requires. If the system refuses `membarrier` later, a thread of this library
//! [visits all processors](super::heavy_fence) instead; retired memory is freed by the first
//! collection after the visit.
//!
//! Objects that are retired together get a *stamp*: the global epoch, which then advances. A change
//! must ensure that memory is freed only after a heavy fence that follows its retirement, and only
//! if every local epoch is outside or later than the stamp, and there are no strays.

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
    /// This thread's local epoch; [`STRAY`], which is never entered, before its first pin and after
    /// its end. Without a destructor, so that an access needs no check.
    static LOCAL: Cell<*const LocalEpoch> = const { Cell::new(&raw const STRAY) };
    /// The state of this thread's collection. Without a destructor, as `LOCAL`.
    static COLLECTION: Cell<Collection> = const { Cell::new(Collection::None) };
    /// Unregisters the local epoch when the thread ends.
    static END: End = const { End };
}

/// The most collections in a row for objects that destructors retire. A value that replaces itself
/// when it is dropped would otherwise keep its thread for ever; later calls collect the rest.
const GENERATIONS_MAX: u32 = 8;

/// The state of a thread's collection. Destructors may come to [`Domain::collect`] again, as they
/// may use the read side and retire objects: such a call would free these objects inside the
/// destructor, whose destructors would call again, until the stack overflows.
#[derive(Clone, Copy, PartialEq)]
enum Collection {
    None,
    Running,
    /// A destructor came to `collect`: collect again when it has returned.
    Repeated,
}

struct Domain {
    global: GlobalEpoch,
    participants: Mutex<Participants>,
    /// Signals [`Visitor::Wanted`] to the visitor.
    is_wanted: Condvar,
    /// The number of guards without a local epoch.
    strays: AtomicUsize,
    /// The global epoch advances under this lock.
    garbage: Mutex<Garbage>,
}

struct Participants {
    registered: Vec<Registered>,
    /// Whether readers must execute fences. `None` until the first thread registers.
    fenced: Option<bool>,
    /// The id of the process at the first pin: the child of a fork has another one.
    process: u32,
    /// The result of [`heavy_fence::can_visit`] at the first pin.
    can_visit: bool,
    /// The stamps that a heavy fence has followed.
    reached: FencedUpTo,
    visitor: Visitor,
    fences: HeavyFences,
}

struct Registered {
    local: *const LocalEpoch,
    /// The thread whose processors the visitor visits. `None`: the thread has ended with guards
    /// left.
    thread: Option<Thread>,
}

/// The state of the thread that visits processors when `membarrier` is refused.
#[derive(Clone, Copy, PartialEq)]
enum Visitor {
    /// The visitor was not needed so far, or could not be spawned.
    None,
    /// The thread sleeps or visits, and no further visit is wanted.
    Idle,
    /// A visit is wanted that starts after this was set.
    Wanted,
}

// SAFETY: a registered local epoch is live, and through a shared reference to it any thread may
// call what `LocalEpoch`'s `Sync` permits.
unsafe impl Send for Participants {}

/// The local epoch of guards of threads without one.
static STRAY: LocalEpoch = LocalEpoch::shared();

/// Proof that the thread is inside the read side.
pub(crate) struct Guard {
    local: NonNull<LocalEpoch>,
}

/// Enters the read side.
#[inline]
pub(crate) fn pin() -> Guard {
    if let Some(guard) = try_pin() {
        return guard;
    }
    let local = local();
    if is_stray(local) {
        return pin_slow();
    }
    // SAFETY: `local` returns a live local epoch.
    unsafe { local.as_ref() }.enter_further(&DOMAIN.global);
    Guard { local }
}

/// Enters the read side if the thread has a local epoch, no guard, and need not execute a fence.
#[inline]
pub(crate) fn try_pin() -> Option<Guard> {
    let local = local();
    // SAFETY: `local` returns a live local epoch.
    let has_entered = unsafe { local.as_ref() }.try_enter(&DOMAIN.global);
    // Lazily: the drop of a guard leaves.
    has_entered.then(|| Guard { local })
}

/// Returns this thread's local epoch, or [`STRAY`]. Both are live: `unregister`, which frees the
/// thread's, sets `LOCAL` to `STRAY`.
#[inline]
fn local() -> NonNull<LocalEpoch> {
    // SAFETY: `LOCAL` is never null: it is the address of a static, or of a box.
    unsafe { NonNull::new_unchecked(LOCAL.get().cast_mut()) }
}

#[cold]
fn pin_slow() -> Guard {
    if let Some(local) = DOMAIN.register() {
        // SAFETY: the local epoch was registered just now, and is freed by this thread's `END` or
        // last guard, which come later.
        unsafe { local.as_ref() }.enter(&DOMAIN.global);
        return Guard { local };
    }
    // Relaxed: ordered by the fence below.
    crate::guard_overflow::check_guards(DOMAIN.strays.fetch_add(1, Ordering::Relaxed));
    // SeqCst: orders the count before the loads of the reader; pairs with the heavy fence, as a
    // local epoch's light fence does.
    fence(Ordering::SeqCst);
    Guard { local: NonNull::from(&STRAY) }
}

/// A cookie for a grace period, from [`start_poll`].
#[derive(Clone, Debug)]
pub struct GracePeriod(u64);

/// Starts a grace period. An object may be freed once [`poll`](GracePeriod::poll) returns true if
/// it was made unreachable before this call, inside the read side, by this thread or under a lock
/// that this thread took since. O(1), takes a lock.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GracePeriod {
    let _garbage = DOMAIN.garbage.lock();
    let stamp = DOMAIN.global.stamp();
    DOMAIN.global.advance(stamp);
    GracePeriod(stamp)
}

impl GracePeriod {
    /// Returns whether [`poll`](Self::poll) can be called without a heavy fence, because one has
    /// run since the start.
    pub fn is_fenced(&self) -> bool {
        DOMAIN.has_fence(self.0)
    }

    /// Returns whether all readers that were inside when the grace period started have left. Never
    /// true on a thread that has been inside since then. Runs a heavy fence, unless one has run
    /// since the start ([`is_fenced`](Self::is_fenced)). O(threads).
    #[doc(alias = "poll_state_synchronize_rcu")]
    pub fn poll(&self) -> bool {
        DOMAIN.is_reached(self.0)
    }
}

/// Frees retired objects whose grace period is over, without waiting for a full batch. A call from
/// a destructor of a retired object frees nothing: they are freed when the destructor has returned.
#[doc(alias = "rcu_barrier")]
pub fn flush() {
    DOMAIN.collect();
}

impl Guard {
    /// Frees `ptr` once every reader that may have seen it has left. Needs no memory.
    ///
    /// # Safety
    ///
    /// `ptr` is an object that [`Retired::free`] can free, is unreachable for readers that pin from
    /// now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let mut garbage = DOMAIN.garbage.lock();
        // SAFETY: the object is retired (this function's clause).
        unsafe { garbage.queues.push(ptr) };
        if (T::IS_LARGE || garbage.is_due()) && !is_stray(self.local) {
            // Deferred: while this thread is inside, a collection would wait for the thread itself.
            self.local().set_collect_pending();
        }
    }

    #[inline]
    fn local(&self) -> &LocalEpoch {
        // SAFETY: a guard does not leave its thread (it has a raw pointer, so it is not `Send`),
        // whose local epoch lives as long as its guards; and `STRAY` is a static.
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

/// Takes the slow path of a guard's drop: the guard is not the thread's last, there are duties, or
/// it is a stray's. Not a method, so that guards need not be in memory.
#[cold]
fn leave_further(local: NonNull<LocalEpoch>) {
    if is_stray(local) {
        // Release: pairs with the Acquire in `is_reached`.
        DOMAIN.strays.fetch_sub(1, Ordering::Release);
        return;
    }
    // SAFETY: a guard does not leave its thread, and `END` does not free the local epoch while the
    // thread has guards.
    let duties = unsafe { local.as_ref() }.leave_further();
    if duties.unregister {
        // SAFETY: the local epoch is this thread's, and `unregister` is set for the thread's last
        // guard only.
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
    /// Registers a local epoch for this thread; `None` if there is no memory, or if the thread is
    /// ending.
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
        LOCAL.set(&STRAY);
        self.participants.lock().registered.retain(|other| other.local != local);
        // SAFETY: `register` got the pointer from a box. `LOCAL`, the list of participants and (by
        // this function's clause) guards no longer point to the local epoch, so no other call frees
        // or uses it.
        drop(unsafe { Box::from_raw(local.cast_mut()) });
    }

    /// Keeps the calling thread's local epoch registered for guards that outlive the thread.
    fn keep(&self, local: *const LocalEpoch) {
        let mut participants = self.participants.lock();
        let kept = participants.registered.iter_mut().find(|other| other.local == local);
        // The id of a thread that has ended may be reused for another thread.
        kept.expect("a local epoch is registered until it is freed").thread = None;
    }

    /// Frees retired objects whose readers have left, and then those that destructors retired
    /// meanwhile. Inside a destructor it frees nothing: the call that runs the destructor does.
    fn collect(&'static self) {
        /// Ends the collection.
        struct Done;
        impl Drop for Done {
            fn drop(&mut self) {
                COLLECTION.set(Collection::None);
            }
        }
        if COLLECTION.get() != Collection::None {
            COLLECTION.set(Collection::Repeated);
            return;
        }
        let _done = Done;
        for _ in 0..GENERATIONS_MAX {
            COLLECTION.set(Collection::Running);
            self.collect_once();
            if COLLECTION.get() != Collection::Repeated {
                return;
            }
        }
        // The next retire collects the rest.
        self.garbage.lock().due_at = 1;
    }

    /// Stamps the new objects, runs or requests a heavy fence, checks all local epochs, and puts
    /// back the objects that must wait. Destructors run without the lock.
    fn collect_once(&'static self) {
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
            // SAFETY: the objects were unreachable when the global epoch advanced, and by
            // `is_reached` every reader inside entered later.
            unsafe { later.queues.free() };
            return;
        }
        let is_past = |sealed: &mut Sealed| self.has_fence(sealed.stamp) && self.is_reached(sealed.stamp);
        let gone = earlier.take_if(is_past);
        self.garbage.lock().put_back(earlier, later);
        if let Some(gone) = gone {
            // SAFETY: the objects were unreachable at their stamp, and by `is_reached` every reader
            // inside entered later.
            unsafe { gone.queues.free() };
        }
    }

    /// Returns whether a heavy fence has begun after the global epoch advanced from `stamp`.
    fn has_fence(&self, stamp: u64) -> bool {
        self.participants.lock().reached.has(stamp)
    }

    /// Returns whether every reader is outside, or entered after objects with this stamp were made
    /// unreachable. Runs a heavy fence, unless one has run since the stamp.
    fn is_reached(&'static self, stamp: u64) -> bool {
        let mut participants = self.participants.lock();
        let fenced = participants.fenced;
        let heavy_fence = || {
            // SeqCst: the heavy fence that the local epochs' protocol requires; sufficient by
            // itself where readers execute their own fences, and for strays.
            fence(Ordering::SeqCst);
            fenced != Some(false) || heavy_fence::run()
        };
        if !participants.reached.reach(stamp, &self.global, heavy_fence) {
            self.want_visit(&mut participants);
            return false;
        }
        // Acquire: pairs with the Release in the drop of a stray's guard.
        self.strays.load(Ordering::Acquire) == 0
            // SAFETY: local epochs are live while they are registered, and the lock is held.
            && participants.registered.iter().all(|other| unsafe { &*other.local }.is_quiescent_since(stamp))
    }

    /// Wakes the visitor, as `membarrier` was refused. The visit serves a later call of
    /// [`is_reached`](Self::is_reached).
    #[cold]
    fn want_visit(&'static self, participants: &mut Participants) {
        // In the child of a fork the visitor does not exist, and the thread ids are those of the
        // parent process.
        if !participants.can_visit || participants.process != std::process::id() {
            participants.fences.refused += 1;
            return;
        }
        if participants.visitor == Visitor::None {
            // The new thread waits for the participants' lock, which is held here.
            let visitor = std::thread::Builder::new().name("lowwater-fence".into()).spawn(|| self.visit_for_ever());
            if visitor.is_err() {
                participants.fences.refused += 1;
                return;
            }
        }
        participants.visitor = Visitor::Wanted;
        self.is_wanted.notify_one();
    }

    /// Runs the visitor's loop.
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
    /// Returns whether readers must execute fences. The first call registers for `membarrier`.
    fn is_fenced(&mut self) -> bool {
        *self.fenced.get_or_insert_with(|| {
            let fenced = !heavy_fence::register();
            self.process = std::process::id();
            self.can_visit = !fenced && heavy_fence::can_visit();
            fenced
        })
    }
}

/// The type of the thread-local `END`; its destructor runs at the thread's end.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let local = local();
        if is_stray(local) {
            return;
        }
        // SAFETY: `local` returns a live local epoch.
        let epoch = unsafe { local.as_ref() };
        if epoch.end_thread() {
            // SAFETY: the local epoch is this thread's, and `end_thread` returned that the thread
            // has no guards.
            unsafe { DOMAIN.unregister(local.as_ptr()) };
        } else {
            DOMAIN.keep(local.as_ptr());
        }
    }
}
