//! The parts that a kernel provides: the lock, the read side, and the processor's number.
//!
//! Without `std`, lowwater by default uses a spin lock and a count of readers. A kernel has better
//! ones: a lock that disables preemption and queues its waiters, and RCU. With the feature
//! `embedder` (and without `std`) the program that embeds lowwater, the embedder, provides both. It
//! registers them once, as it does a global allocator:
//!
//! ```ignore
//! lowwater_base::embedder! { lock: SpinLock, read: Rcu, processor: Smp }
//! ```
//!
//! | part | trait | requirement |
//! |---|---|---|
//! | the lock | [`lock_api::RawMutex`], marked [`Lock`] | fits into [`LockSpace`], and is free when its bytes are zero |
//! | the read side, and freeing after it | [`ReadSide`] | enter, leave, and a callback when all current readers have left |
//! | the processor | [`Processor`] | its number, by which counters are spread; how many there are |
//!
//! NUMA nodes are not registered here; the `Topology` of `lowwater-lru-core` has them.
//!
//! Reader-writer locks become plain locks: a reader that can be preempted is incompatible with a
//! writer that spins for it with preemption disabled. All calls are resolved at link time; with
//! link-time optimization they are direct calls, or inlined.
//!
//! Contexts: locks are taken in contexts where the embedder allows *its* lock to be taken. With a
//! lock that does not mask interrupts, that is everywhere but in interrupt handlers. Memory is
//! allocated and freed under locks, also under a list's lock: by the list's listener, such as the
//! shrinkers' map. So the global allocator must neither sleep nor reclaim; it may fail.
//!
//! A [`LockSpace`] has four bytes. A kernel's lock under which tasks sleep, as Linux has with
//! `PREEMPT_RT`, needs more: with `--cfg lowwater_wide_lock` in `RUSTFLAGS`, it has 32 bytes. Each
//! list of a group on a node becomes larger by the difference.
//!
//! The traits are the contract with a kernel's code: a change of a signature or a clause breaks
//! each embedder (`examples/kernel_module`).

use core::cell::UnsafeCell;

/// A word of a [`LockSpace`], which gives its alignment.
#[cfg(not(lowwater_wide_lock))]
type Word = u32;
/// A word of a [`LockSpace`], which gives its alignment.
#[cfg(lowwater_wide_lock)]
type Word = u64;

/// The number of words in a [`LockSpace`].
const WORDS: usize = if cfg!(lowwater_wide_lock) { 4 } else { 1 };

/// The memory of an embedder's lock: four bytes, or 32 with `--cfg lowwater_wide_lock`. Initially
/// zero.
#[repr(C)]
#[derive(Debug)]
pub struct LockSpace(UnsafeCell<[Word; WORDS]>);

// SAFETY: the bytes are accessed only as a `Lock`, which is `Sync`.
unsafe impl Sync for LockSpace {}

impl LockSpace {
    /// Creates a space of zero bytes: a free lock.
    #[expect(clippy::new_without_default, reason = "created only as a part of a lock")]
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; WORDS]))
    }

    /// Returns the lock in this space.
    ///
    /// # Safety
    ///
    /// A space is viewed as one type only: another type's lock would read the bytes of the first.
    #[inline]
    pub unsafe fn view<L: Lock>(&self) -> &L {
        const { assert!(size_of::<L>() <= size_of::<Self>(), "an embedder's lock must fit into `LockSpace`") };
        const { assert!(align_of::<L>() <= align_of::<Self>(), "`LockSpace` must be aligned enough for the lock") };
        // SAFETY: the lock fits, by the assertions above; zero bytes are a free `L` (clause of
        // `Lock`), and no other type changed them (this function's clause).
        unsafe { &*self.0.get().cast::<L>() }
    }
}

/// A lock that the embedder provides.
///
/// # Safety
///
/// Bytes that are all zero are a free lock of this type, and the lock has no destructor that must
/// run. `unlock` no longer accesses the lock once another thread can take it: that thread may free
/// the memory as soon as it has released the lock itself. (Linux's spin locks allow that, its
/// `struct mutex` does not.)
pub unsafe trait Lock: lock_api::RawMutex + Sync {}

/// The read side that the embedder provides: RCU.
///
/// # Safety
///
/// A reader is inside between [`enter`](Self::enter) and the matching [`leave`](Self::leave). For
/// each [`after_readers`](Self::after_readers) that is called while a reader is inside, every
/// access of that reader happens before `readers_left` is called. Every access before
/// `after_readers` happens before the accesses of each reader that enters after `readers_left` was
/// called. (`readers_left` is a function of `lowwater-rcu`.)
///
/// Safe code can leak a guard. Then an [`enter`](Self::enter) has no matching
/// [`leave`](Self::leave), and references that the guard protects may be used for ever, on any
/// thread, also after the thread that entered has ended. The embedder must not answer any later
/// `after_readers` then. A system on which the end of a thread ends its read-side section, as Linux
/// does for a task that exits, must halt before such a thread ends. A count of `enter` calls must
/// not wrap: the embedder must halt before.
pub unsafe trait ReadSide {
    /// Enters the read side on this thread. Nests. Must not fail or sleep.
    fn enter();

    /// Leaves the read side.
    ///
    /// # Safety
    ///
    /// The thread entered, and has not left yet.
    unsafe fn leave();

    /// Requests one call of `readers_left` when all current readers have left, from a context where
    /// memory may be freed and locks may be taken. `after_readers` is called under locks of
    /// `lowwater-rcu`, so it must not sleep, and must not call `readers_left` itself. It is not
    /// called again before `readers_left` has answered the request.
    ///
    /// # Safety
    ///
    /// Only `lowwater-rcu` may call it, with one request at a time: the previous request was
    /// answered by `readers_left`.
    #[doc(alias = "call_rcu")]
    unsafe fn after_readers();
}

/// The processor that the embedder reports.
pub trait Processor {
    /// Returns the number of the current processor.
    #[doc(alias = "smp_processor_id")]
    fn current() -> usize;

    /// Returns the number of processors, by which shared structures are sized; 1 if it is unknown.
    #[doc(alias = "num_possible_cpus")]
    fn count() -> usize {
        1
    }
}

/// Registers the embedder's [`Lock`], [`ReadSide`] and [`Processor`]; exactly once in a program.
/// See [`embedder`](mod@crate::embedder).
#[macro_export]
macro_rules! embedder {
    (lock: $lock:ty, read: $read:ty, processor: $processor:ty $(,)?) => {
        const _: () = {
            // Full paths: a type of the embedder may have the name of a trait.
            #[unsafe(no_mangle)]
            extern "Rust" fn __lowwater_lock(space: &$crate::embedder::LockSpace) {
                // SAFETY: every space is viewed as this one type.
                $crate::embedder::__lock_api::RawMutex::lock(unsafe { space.view::<$lock>() });
            }
            #[unsafe(no_mangle)]
            extern "Rust" fn __lowwater_try_lock(space: &$crate::embedder::LockSpace) -> bool {
                // SAFETY: every space is viewed as this one type.
                $crate::embedder::__lock_api::RawMutex::try_lock(unsafe { space.view::<$lock>() })
            }
            #[unsafe(no_mangle)]
            unsafe extern "Rust" fn __lowwater_unlock(space: &$crate::embedder::LockSpace) {
                // SAFETY: every space is viewed as this one type.
                let lock = unsafe { space.view::<$lock>() };
                // SAFETY: the caller holds the lock (clause of the declaration in `hooks`).
                unsafe { $crate::embedder::__lock_api::RawMutex::unlock(lock) }
            }
            #[unsafe(no_mangle)]
            extern "Rust" fn __lowwater_enter() {
                <$read as $crate::embedder::ReadSide>::enter();
            }
            #[unsafe(no_mangle)]
            unsafe extern "Rust" fn __lowwater_leave() {
                // SAFETY: the caller has entered, and has not left yet (clause of the declaration
                // in `hooks`).
                unsafe { <$read as $crate::embedder::ReadSide>::leave() }
            }
            #[unsafe(no_mangle)]
            unsafe extern "Rust" fn __lowwater_after_readers() {
                // SAFETY: no request is open (clause of the declaration in `hooks`).
                unsafe { <$read as $crate::embedder::ReadSide>::after_readers() };
            }
            #[unsafe(no_mangle)]
            extern "Rust" fn __lowwater_processor() -> usize {
                <$processor as $crate::embedder::Processor>::current()
            }
            #[unsafe(no_mangle)]
            extern "Rust" fn __lowwater_processors() -> usize {
                <$processor as $crate::embedder::Processor>::count()
            }
        };
    };
}

#[doc(hidden)]
pub use lock_api as __lock_api;

/// The functions that [`embedder!`](crate::embedder) defines. Declarations and definitions have the
/// same signatures, which nothing checks. Each unsafe function has its clause here.
#[doc(hidden)]
pub mod hooks {
    use super::LockSpace;

    // SAFETY: `embedder!` defines them with these signatures; functions declared `safe` here are
    // safe there.
    unsafe extern "Rust" {
        pub safe fn __lowwater_lock(space: &LockSpace);
        pub safe fn __lowwater_try_lock(space: &LockSpace) -> bool;
        /// The caller holds the lock.
        pub unsafe fn __lowwater_unlock(space: &LockSpace);
        pub safe fn __lowwater_enter();
        /// The caller has entered, and has not left yet.
        pub unsafe fn __lowwater_leave();
        /// The previous request was answered.
        pub unsafe fn __lowwater_after_readers();
        pub safe fn __lowwater_processor() -> usize;
        pub safe fn __lowwater_processors() -> usize;
    }
}
