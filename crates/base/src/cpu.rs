//! The processors: their number, and the one that runs the calling thread.

/// Returns the number of processors that the process may use: the number of slots worth having in a
/// per-processor structure. [`hint`] is mostly lower.
pub fn count() -> usize {
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    {
        std::thread::available_parallelism().map_or(1, core::num::NonZero::get)
    }
    // Without `std` the number is unknown, and a model check should be small.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    {
        1
    }
}

/// Returns the number of processors on which this thread may run, if it is known. Allocates
/// nothing.
pub fn allowed() -> usize {
    #[cfg(all(feature = "std", target_os = "linux", not(lowwater_loom)))]
    {
        rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize)
    }
    #[cfg(not(all(feature = "std", target_os = "linux", not(lowwater_loom))))]
    {
        count()
    }
}

/// Returns the operating system's number of the processor that runs this thread, if it is known:
/// 1-2 ns on Linux.
#[inline]
pub fn current() -> Option<usize> {
    #[cfg(all(feature = "std", target_os = "linux", not(lowwater_loom)))]
    {
        Some(rustix::thread::sched_getcpu())
    }
    #[cfg(all(not(feature = "std"), feature = "embedder", not(lowwater_loom)))]
    {
        Some(crate::embedder::hooks::__lowwater_processor())
    }
    #[cfg(not(any(
        all(feature = "std", target_os = "linux", not(lowwater_loom)),
        all(not(feature = "std"), feature = "embedder", not(lowwater_loom))
    )))]
    {
        None
    }
}

/// Returns a number that concurrently running threads rarely share: the processor's, or else one
/// derived from the thread's id.
#[inline]
pub fn hint() -> usize {
    current().unwrap_or_else(thread)
}

#[cfg(all(feature = "std", not(lowwater_loom)))]
fn thread() -> usize {
    use core::hash::{BuildHasher as _, BuildHasherDefault};
    let hasher = BuildHasherDefault::<std::hash::DefaultHasher>::default();
    hasher.hash_one(std::thread::current().id()) as usize
}

#[cfg(any(not(feature = "std"), lowwater_loom))]
fn thread() -> usize {
    0
}

/// Returns a number that is mostly constant for a thread, where neither processor nor thread id is
/// available: derived from the address of its stack.
#[inline]
pub fn stack() -> usize {
    let here = 0_u8;
    // Stacks are 16 KiB or a multiple of that apart; so all higher bits must have an effect.
    let hash = ((&raw const here).addr() as u64 >> 14).wrapping_mul(crate::hash::GOLDEN_RATIO);
    (hash >> 32) as usize
}
