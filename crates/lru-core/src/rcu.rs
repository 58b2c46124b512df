//! The read side, and freeing after it: a reader follows a pointer without a lock, so what it may still see is not freed yet.
//!
//! A reader [`pin`]s; as long as the guard lives, nothing that was reachable at or after the pin is freed. A writer first makes a
//! thing unreachable, then [`retire`](Guard::retire)s it. There is one read side for the whole process, as in a kernel: an
//! item says itself which list it is on, so who removes it must be allowed to look before knowing whose list that is.
//!
//! | build | how | cost of a pin |
//! |---|---|---|
//! | `std` on Linux | [`marks`]: readers mark a line of their own; `membarrier` is the fence when something is freed | two stores; a fence where a kernel or a sandbox has no `membarrier` at the first pin ([later](heavy_fence)) |
//! | `std` elsewhere, or `--cfg lowwater_epoch` | crossbeam-epoch's default collector | a fence |
//! | without `std`, and under loom | readers are counted; the last one out frees | one shared counter |
//! | without `std`, with `embedder` | the embedder's: a kernel's RCU | what that costs |
//!
//! crossbeam-epoch is the well-kept library for this, and what is used where the system does not help. On Linux two things speak
//! for marks: an add and a del each pin and do little else, so a fence in each is a third of their time; and crossbeam-epoch
//! aborts where there is no memory to register a thread or to remember what is retired, while a population here may fail and
//! must leave nothing behind (L17). What is retired under marks is [queued](queue) through itself.
//!
//! Nothing that is retired needs its destructor to run early: what must be given back at once (a group's handle, so that its id
//! returns) is taken out before.

mod cell;
#[cfg(any(lowwater_loom, not(any(feature = "std", feature = "embedder"))))]
mod count;
#[cfg(all(not(lowwater_loom), not(feature = "std"), feature = "embedder"))]
mod embedded;
#[cfg(all(not(lowwater_loom), feature = "std", any(lowwater_epoch, not(target_os = "linux"))))]
mod epoch;
#[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
mod heavy_fence;
#[cfg(any(
    all(test, lowwater_loom),
    all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch))
))]
mod marks;
#[cfg_attr(
    all(not(lowwater_loom), feature = "std", any(lowwater_epoch, not(target_os = "linux"))),
    expect(dead_code, reason = "crossbeam-epoch keeps itself what waits")
)]
mod queue;
#[cfg(any(lowwater_loom, not(feature = "std")))]
pub(crate) mod readers;
#[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
mod thread;

pub(crate) use cell::Erased;
pub use cell::RcuCell;
#[cfg(any(lowwater_loom, not(any(feature = "std", feature = "embedder"))))]
pub(crate) use count::{flush, pin, seal, Guard, Stamp};
#[cfg(all(not(lowwater_loom), not(feature = "std"), feature = "embedder"))]
pub(crate) use embedded::{flush, pin, seal, Guard, Stamp};
#[cfg(all(not(lowwater_loom), not(feature = "std"), feature = "embedder"))]
pub use embedded::{readers_left, waiting};
#[cfg(all(not(lowwater_loom), feature = "std", any(lowwater_epoch, not(target_os = "linux"))))]
pub(crate) use epoch::{flush, pin, seal, Guard, Stamp};
pub(crate) use queue::{Queue, Queues};
#[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
pub(crate) use thread::{flush, pin, seal, Guard, Stamp};

/// Counts of refused and replaced `membarrier` calls: from [`heavy_fences`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeavyFences {
    /// `membarrier` was refused, and a thread of this library ran on every processor of this
    /// process' readers instead. Takes milliseconds where processors are busy.
    pub visited: u64,
    /// Both were refused. Retired memory waits for the next try: while `refused` grows and
    /// `visited` does not, no retired memory is freed. Caches then refuse inserts once too much
    /// waits. Lists and hash tables have no such bound.
    pub refused: u64,
}

/// Returns how often `membarrier` was refused since the process began. Both counts are zero where
/// it never was, was from the first pin on (readers bring fences then), or is not used by this
/// build. O(1), one lock.
///
/// A filter of system calls (`seccomp`) that is installed after the first pin should allow
/// `membarrier`. If the filter refuses that call, it should allow `sched_getaffinity`,
/// `sched_setaffinity` and the creation of a thread. If one of those is refused as well, retired
/// memory is not freed.
///
/// ```
/// let fences = lowwater_lru_core::heavy_fences();
/// assert_eq!(fences.refused, 0, "a filter holds retired memory back");
/// ```
pub fn heavy_fences() -> HeavyFences {
    #[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
    {
        thread::heavy_fences()
    }
    #[cfg(not(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch))))]
    {
        HeavyFences::default()
    }
}

/// Aborts, as `Arc` does, if there were more than `isize::MAX` guards before this one: guards were
/// leaked, and a count that wraps would free memory under readers.
#[cfg(any(lowwater_loom, not(feature = "std"), all(target_os = "linux", not(lowwater_epoch))))]
#[inline]
fn check_guards(guards: usize) {
    if guards > isize::MAX as usize {
        too_many_guards();
    }
}

#[cfg(any(lowwater_loom, not(feature = "std"), all(target_os = "linux", not(lowwater_epoch))))]
#[cold]
extern "C" fn too_many_guards() -> ! {
    // A panic that would leave an `extern "C"` function aborts, also without `std`.
    panic!("guards were leaked until they could not be counted");
}

/// A thing that can be retired.
pub(crate) trait Retired: Send + Sized + 'static {
    /// Is one by itself worth the cost of finding out whether its readers have left?
    #[cfg_attr(
        not(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch))),
        expect(dead_code, reason = "elsewhere nothing waits for others")
    )]
    const IS_LARGE: bool = false;

    /// Room for a pointer, that nobody uses any more once this is retired.
    fn link(&self) -> &crate::sync::UnsafeCell<*mut Self>;

    /// Where its kind waits.
    #[cfg_attr(
        all(not(lowwater_loom), feature = "std", any(lowwater_epoch, not(target_os = "linux"))),
        expect(dead_code, reason = "crossbeam-epoch keeps itself what waits")
    )]
    fn queue(queues: &mut Queues) -> &mut Queue<Self>;

    /// Frees it: a box, unless it says otherwise.
    ///
    /// # Safety
    ///
    /// It was retired, and no reader sees it any more.
    unsafe fn free(this: *mut Self) {
        // SAFETY: what is retired came from a box.
        drop(unsafe { alloc::boxed::Box::from_raw(this) });
    }

    /// Tells a model checker that it is about to be freed, so that a reader who may still look at it is found out.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self);
}
