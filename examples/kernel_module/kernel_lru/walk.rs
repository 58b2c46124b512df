// SPDX-License-Identifier: GPL-2.0

//! The callback of a walk and its verdicts.
//!
//! C callbacks return an `enum lru_status`, and must hold the list's lock or not according to it.
//! Here a verdict can only be had from an [`Isolate`], by a method that leaves the lock in the
//! state which the verdict names, so a wrong one does not compile.
//!
//! | kernel | here | the lock |
//! |---|---|---|
//! | `LRU_REMOVED` | [`it.isolate(&mut private)`](Isolate::isolate) | kept |
//! | `LRU_ROTATE` | [`it.rotate()`](Isolate::rotate) | kept |
//! | `LRU_SKIP` | [`it.skip()`](Isolate::skip) | kept |
//! | `LRU_RETRY` | [`it.unlock().retry()`](Unlocked::retry) | released |
//! | `LRU_REMOVED_RETRY` | [`it.remove()`](Isolate::remove), then `.retry()` | released |
//! | `LRU_STOP` | [`it.unlock().stop()`](Unlocked::stop) | released |
//!
//! A change must ensure that no verdict can be created otherwise; `../refused` has those that must
//! not compile.

use super::{
    lru_arc::{LruArc, LruItem},
    Isolated,
};
use core::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};
use kernel::{bindings, ffi::c_void};

/// Ties the values of one call of a callback together: invariant in `'a`.
type Call<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// One visited object, under its list's lock.
///
/// # Invariants
///
/// `item` is on `list`. This thread holds `lock`, the lock of `list`.
#[must_use = "the walk needs a verdict"]
pub(crate) struct Isolate<'a, T> {
    item: NonNull<LruItem<T>>,
    list: *mut bindings::list_lru_one,
    lock: *mut bindings::spinlock_t,
    call: Call<'a>,
}

/// The verdict on an object, from [`Isolate`] or [`Unlocked`].
///
/// # Invariants
///
/// It belongs to one call of a callback, `'a`, in which the lock of the list was released if
/// `verdict` is `Retry` or `Stop`, and is held otherwise. The object was taken off its list if
/// `verdict` is `Removed` or its `removed` is true, and is on it otherwise unless another thread
/// removed it after the release.
#[doc(alias = "lru_status")]
#[must_use = "the walk needs a verdict"]
pub(crate) struct LruStatus<'a> {
    verdict: Verdict,
    call: Call<'a>,
}

/// The verdict, by the state in which it leaves the lock.
enum Verdict {
    /// The lock is held.
    Removed,
    /// The lock is held.
    Rotate,
    /// The lock is held.
    Skip,
    /// The lock was released.
    Retry { removed: bool },
    /// The lock was released.
    Stop { removed: bool },
}

/// Proof that the callback released the lock.
///
/// # Invariants
///
/// It belongs to one call of a callback, `'a`, which has released the lock of the list and not
/// taken it again. `removed` is true if the call took the object off its list before.
#[must_use = "the walk needs a verdict"]
pub(crate) struct Unlocked<'a> {
    removed: bool,
    call: Call<'a>,
}

impl<'a, T> Isolate<'a, T> {
    /// Returns the object.
    ///
    /// The lock of its list is held, so the callback must not sleep. A lock that other code holds
    /// while it adds an object to a list may only be tried: waiting for it could deadlock.
    #[inline]
    pub(crate) fn item(&self) -> &T {
        // SAFETY: By the type invariant, the object is on the list, which owns a reference.
        unsafe { self.item.as_ref() }.value()
    }

    /// Returns a new handle on the object, to use it after the lock is released.
    pub(crate) fn arc(&self) -> LruArc<T> {
        // SAFETY: By the type invariant, the object is on the list, which owns a reference.
        // `ManuallyDrop` keeps this handle, which stands for the list's reference, from dropping
        // it.
        let lists = ManuallyDrop::new(unsafe { LruArc::from_item(self.item) });
        LruArc::clone(&lists)
    }

    /// Takes the object off its list: the caller takes over the list's reference.
    #[inline]
    fn unlink(&mut self) {
        // SAFETY: By the type invariant, the object is on the list, and its lock is held.
        unsafe { bindings::list_lru_isolate(self.list, LruItem::links(self.item)) };
    }

    /// Moves the object to a private list, to be freed after the lock is released.
    ///
    /// `to` must outlive the walk: a list that the callback itself creates and drops would drop the
    /// object under the lock of its list.
    #[doc(alias = "LRU_REMOVED")]
    #[inline]
    pub(crate) fn isolate(mut self, to: &mut Isolated<T>) -> LruStatus<'a> {
        self.unlink();
        // SAFETY: The object was claimed by the list, and is on none now.
        unsafe { to.push(self.item) };
        // INVARIANT: The object is off its list, whose lock is held.
        LruStatus {
            verdict: Verdict::Removed,
            call: PhantomData,
        }
    }

    /// Keeps the object, as the youngest.
    #[doc(alias = "LRU_ROTATE")]
    pub(crate) fn rotate(self) -> LruStatus<'a> {
        // INVARIANT: The object is on its list, whose lock is held.
        LruStatus {
            verdict: Verdict::Rotate,
            call: PhantomData,
        }
    }

    /// Keeps the object where it is.
    #[doc(alias = "LRU_SKIP")]
    pub(crate) fn skip(self) -> LruStatus<'a> {
        // INVARIANT: The object is on its list, whose lock is held.
        LruStatus {
            verdict: Verdict::Skip,
            call: PhantomData,
        }
    }

    /// Releases the lock and keeps the object, which another thread may remove and free at once.
    pub(crate) fn unlock(self) -> Unlocked<'a> {
        // SAFETY: By the type invariant, this thread holds the lock.
        unsafe { bindings::spin_unlock(self.lock) };
        // INVARIANT: The lock was released above, and the object was left on its list.
        Unlocked {
            removed: false,
            call: PhantomData,
        }
    }

    /// Removes the object and releases the lock.
    #[doc(alias = "LRU_REMOVED_RETRY")]
    pub(crate) fn remove(mut self) -> (LruArc<T>, Unlocked<'a>) {
        self.unlink();
        // SAFETY: The list's reference keeps the object alive.
        unsafe { self.item.as_ref() }.unclaim();
        // SAFETY: By the type invariant, this thread holds the lock.
        unsafe { bindings::spin_unlock(self.lock) };
        // SAFETY: The list's reference of the object becomes the handle's.
        let item = unsafe { LruArc::from_item(self.item) };
        // INVARIANT: The lock was released above, after the object was taken off its list.
        let unlocked = Unlocked {
            removed: true,
            call: PhantomData,
        };
        (item, unlocked)
    }
}

impl<'a> Unlocked<'a> {
    /// Continues the walk.
    ///
    /// The kernel's lists have no cursor: it begins again at the oldest object, and each visit
    /// counts against `nr_to_walk`, so the walk ends.
    #[doc(alias = "LRU_RETRY")]
    pub(crate) fn retry(self) -> LruStatus<'a> {
        // INVARIANT: The lock was released, and `removed` says whether the object was taken off its
        // list (invariant of `Unlocked`).
        LruStatus {
            verdict: Verdict::Retry {
                removed: self.removed,
            },
            call: PhantomData,
        }
    }

    /// Ends the walk.
    #[doc(alias = "LRU_STOP")]
    pub(crate) fn stop(self) -> LruStatus<'a> {
        // INVARIANT: The lock was released, and `removed` says whether the object was taken off its
        // list (invariant of `Unlocked`).
        LruStatus {
            verdict: Verdict::Stop {
                removed: self.removed,
            },
            call: PhantomData,
        }
    }
}

/// The argument of [`isolate`].
///
/// # Invariants
///
/// `left` points to a variable of the function that runs the walk; C accesses it too, but not
/// during a call of the callback.
struct Walk<'c, F> {
    callback: &'c mut F,
    /// The visits left, which C counts down.
    left: *mut usize,
    /// The visits left when the callback ended the walk.
    stopped: usize,
}

/// The kernel's callback.
pub(super) type IsolateFn = unsafe extern "C" fn(
    *mut bindings::list_head,
    *mut bindings::list_lru_one,
    *mut bindings::spinlock_t,
    *mut c_void,
) -> bindings::lru_status;

/// Runs a walk of C, `run`, with `callback`, and returns the number of removed objects.
///
/// `run` is called with a function, its argument and the number of visits; the function may be
/// called for the objects of a `list_lru` that consists of `LruItem<T>`, during `run` only.
///
/// A walk of C goes on until it has made its visits: it visits rotated objects again. `present`,
/// the number of objects at the start, bounds the visits, so that a walk that only rotates ends; in
/// a walk of one list it visits no rotated object again.
#[inline]
pub(super) fn walk<T, F>(
    nr_to_walk: &mut u64,
    present: u64,
    callback: &mut F,
    run: impl FnOnce(IsolateFn, *mut c_void, *mut usize) -> usize,
) -> u64
where
    F: for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
{
    let visits = present.min(*nr_to_walk);
    let mut left = visits as usize;
    let left: *mut usize = &mut left;
    // INVARIANT: `left` is a variable of this function, and C accesses it between two calls.
    let mut walk = Walk {
        callback,
        left,
        stopped: 0,
    };
    let removed = run(isolate::<T, F>, (&raw mut walk).cast(), left);
    // SAFETY: `left` points to this function's variable.
    *nr_to_walk -= visits - (unsafe { *left } + walk.stopped) as u64;
    removed as u64
}

/// Calls the callback, and brings the lock to the state that C expects.
///
/// # Safety
///
/// It is called by a walk of C over `LruItem<T>`s: `links` are those of an object on `list`, whose
/// lock `lock` this thread holds, and `walk` is the walk's [`Walk`].
unsafe extern "C" fn isolate<T, F>(
    links: *mut bindings::list_head,
    list: *mut bindings::list_lru_one,
    lock: *mut bindings::spinlock_t,
    walk: *mut c_void,
) -> bindings::lru_status
where
    F: for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
{
    // SAFETY: By the safety requirements, it is the walk, which only this call uses now.
    let walk = unsafe { &mut *walk.cast::<Walk<'_, F>>() };
    // SAFETY: By the safety requirements, the links are those of a `LruItem<T>`.
    let item = unsafe { LruItem::from_links(links) };
    // INVARIANT: By the safety requirements, the object is on this list, and the lock is held.
    let status = (walk.callback)(Isolate {
        item,
        list,
        lock,
        call: PhantomData,
    });
    if matches!(status.verdict, Verdict::Retry { .. } | Verdict::Stop { .. }) {
        // SAFETY: By the invariant of `LruStatus`, the lock was released by this call; C expects it
        // held. The node's lock lives as long as the lists.
        unsafe { bindings::spin_lock(lock) };
    }
    match status.verdict {
        Verdict::Removed => bindings::lru_status_LRU_REMOVED,
        Verdict::Rotate => bindings::lru_status_LRU_ROTATE,
        Verdict::Skip => bindings::lru_status_LRU_SKIP,
        Verdict::Retry { removed: false } => bindings::lru_status_LRU_RETRY,
        Verdict::Retry { removed: true } => bindings::lru_status_LRU_REMOVED_RETRY,
        Verdict::Stop { removed } => {
            // Without visits left, C does not go on with the list of another group either.
            // SAFETY: By the invariant of `Walk`, C does not access the counter now.
            walk.stopped = unsafe { walk.left.replace(0) };
            // C counts a removed object only with a verdict that goes on.
            match removed {
                true => bindings::lru_status_LRU_REMOVED_RETRY,
                false => bindings::lru_status_LRU_STOP,
            }
        }
    }
}
