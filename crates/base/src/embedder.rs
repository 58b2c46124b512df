//! What a kernel brings of its own: the lock, the read side, and which processor this is.
//!
//! Without `std` lowwater makes do with a spin lock and a count of readers. A kernel has better: a lock that switches
//! preemption off and queues those who wait, and RCU. With the feature `embedder` (and without `std`) both come from outside, named
//! once in the program, as a global allocator is:
//!
//! ```ignore
//! lowwater_base::embedder! { lock: SpinLock, read: Rcu, processor: Smp }
//! ```
//!
//! | what | trait | what it must do |
//! |---|---|---|
//! | the lock | [`lock_api::RawMutex`], marked [`Lock`] | fit in four bytes, and be free when they are zero |
//! | the read side, and freeing after it | [`ReadSide`] | enter, leave, and say when all who are inside have left |
//! | the processor | [`Processor`] | a number, to spread what is counted |
//! | nodes | the `Topology` of `lowwater-lru-core` | count them, and tell which one is near |
//!
//! Reader-writer locks become plain ones: a reader that can be preempted, and a writer that spins for it with preemption off, do not
//! go together. All calls resolve when the program is linked; with link-time optimization they are direct calls, or none.
//!
//! Contexts: locks are taken from where the embedder allows *its* lock to be taken. With a lock that does not mask interrupts, that
//! is everywhere but in interrupts. Nothing is allocated under a list's lock.

use core::cell::UnsafeCell;

/// The room of a lock, all of it the embedder's. Zero to begin with.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct LockSpace(UnsafeCell<[u8; 4]>);

// SAFETY: what is in it is a `Lock`, which is `Sync`; nobody else touches the bytes.
unsafe impl Sync for LockSpace {}

impl LockSpace {
    /// A lock that is free.
    #[expect(clippy::new_without_default, reason = "made by whoever holds a lock, nowhere else")]
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; 4]))
    }

    /// Returns the lock in this space.
    ///
    /// # Safety
    ///
    /// A space is viewed as one type only: another type's lock would read the bytes of the first.
    #[inline]
    pub unsafe fn view<L: Lock>(&self) -> &L {
        const { assert!(size_of::<L>() <= size_of::<Self>(), "an embedder's lock has four bytes") };
        const { assert!(align_of::<L>() <= align_of::<Self>(), "an embedder's lock is aligned to four bytes") };
        // SAFETY: it fits, by the assertions above; zero bytes are a free `L` (clause of `Lock`), and no other type changed them (this
        // function's clause).
        unsafe { &*self.0.get().cast::<L>() }
    }
}

/// A lock of the embedder's.
///
/// # Safety
///
/// Bytes that are all zero are a free lock of this type, and the lock has no destructor that must run.
pub unsafe trait Lock: lock_api::RawMutex + Sync {}

/// The embedder's read side: RCU.
///
/// # Safety
///
/// A reader is inside between [`enter`](Self::enter) and the matching [`leave`](Self::leave). For each
/// [`after_readers`](Self::after_readers) that is called while a reader is inside, every access of
/// that reader happens before `readers_left` is called. Every access before `after_readers` happens
/// before the accesses of each reader that enters after `readers_left` was called.
///
/// Safe code can leak a guard. Then an [`enter`](Self::enter) has no matching
/// [`leave`](Self::leave), and references that the guard protects may be used for ever, on any
/// thread, also after the thread that entered has ended. No later `after_readers` may be answered
/// then. A system on which the end of a thread ends its read-side section, as Linux does for a task
/// that exits, must halt before such a thread ends. A count of `enter` calls must not wrap: the
/// embedder halts before.
pub unsafe trait ReadSide {
    /// Enters the read side on this thread. Nests. Must not fail or sleep.
    fn enter();

    /// Leaves it.
    ///
    /// # Safety
    ///
    /// The thread entered, and has not left yet.
    unsafe fn leave();

    /// Has `readers_left` called once, when everybody who is inside now has left, from where memory may be freed and locks may
    /// be taken. Called under locks of `lowwater-rcu`, so it must not sleep, and must not call `readers_left` itself. Not called
    /// again before that has been answered.
    ///
    /// # Safety
    ///
    /// For `lowwater-rcu` alone, which asks one question at a time: the question before was answered by `readers_left`.
    #[doc(alias = "call_rcu")]
    unsafe fn after_readers();
}

/// Which processor runs this.
pub trait Processor {
    /// Its number.
    #[doc(alias = "smp_processor_id")]
    fn current() -> usize;
}

/// Names the embedder's [`Lock`], [`ReadSide`] and [`Processor`], once in a program. See [`embedder`](mod@crate::embedder).
#[macro_export]
macro_rules! embedder {
    (lock: $lock:ty, read: $read:ty, processor: $processor:ty $(,)?) => {
        const _: () = {
            use $crate::embedder::{LockSpace, Processor, ReadSide};

            #[unsafe(no_mangle)]
            extern "Rust" fn __lowwater_lock(space: &LockSpace) {
                // SAFETY: each space is viewed as this one type.
                $crate::embedder::__lock_api::RawMutex::lock(unsafe { space.view::<$lock>() });
            }
            #[unsafe(no_mangle)]
            extern "Rust" fn __lowwater_try_lock(space: &LockSpace) -> bool {
                // SAFETY: each space is viewed as this one type.
                $crate::embedder::__lock_api::RawMutex::try_lock(unsafe { space.view::<$lock>() })
            }
            #[unsafe(no_mangle)]
            unsafe extern "Rust" fn __lowwater_unlock(space: &LockSpace) {
                // SAFETY: each space is viewed as this one type.
                let lock = unsafe { space.view::<$lock>() };
                // SAFETY: the caller holds the lock.
                unsafe { $crate::embedder::__lock_api::RawMutex::unlock(lock) }
            }
            #[unsafe(no_mangle)]
            extern "Rust" fn __lowwater_enter() {
                <$read as ReadSide>::enter();
            }
            #[unsafe(no_mangle)]
            unsafe extern "Rust" fn __lowwater_leave() {
                // SAFETY: the caller has entered, and has not left yet.
                unsafe { <$read as ReadSide>::leave() }
            }
            #[unsafe(no_mangle)]
            unsafe extern "Rust" fn __lowwater_after_readers() {
                // SAFETY: no question is open: the clause of the caller.
                unsafe { <$read as ReadSide>::after_readers() };
            }
            #[unsafe(no_mangle)]
            extern "Rust" fn __lowwater_processor() -> usize {
                <$processor as Processor>::current()
            }
        };
    };
}

#[doc(hidden)]
pub use lock_api as __lock_api;

/// What [`embedder!`](crate::embedder) defines. The signatures here and there are the same, and none takes what is not safe to pass.
#[doc(hidden)]
pub mod hooks {
    use super::LockSpace;

    // SAFETY: `embedder!` defines them with these signatures; what is `safe` here is safe there.
    unsafe extern "Rust" {
        pub safe fn __lowwater_lock(space: &LockSpace);
        pub safe fn __lowwater_try_lock(space: &LockSpace) -> bool;
        /// The caller holds the lock.
        pub unsafe fn __lowwater_unlock(space: &LockSpace);
        pub safe fn __lowwater_enter();
        /// The caller has entered, and has not left yet.
        pub unsafe fn __lowwater_leave();
        /// The question before was answered.
        pub unsafe fn __lowwater_after_readers();
        pub safe fn __lowwater_processor() -> usize;
    }
}
