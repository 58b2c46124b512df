//! Which processor runs us.

/// A number below which [`hint`] mostly stays: how many slots of something are worth having.
pub fn count() -> usize {
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    {
        std::thread::available_parallelism().map_or(1, core::num::NonZero::get)
    }
    // Without std nobody is there to ask, and a model check is small.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    {
        1
    }
}

/// How many processors this thread may run on, where it is known. Allocates nothing.
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

/// The operating system's number of the processor that runs this thread, where it tells: 1-2 ns on Linux.
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

/// A number that threads which run at the same time rarely share: the processor, or else one made of the thread's name.
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

/// A number that stays with a thread mostly, where nobody can be asked who runs: made of where its stack lies.
#[inline]
pub fn stack() -> usize {
    let here = 0_u8;
    // Stacks lie 16 KiB apart, or many times that; so all bits above shall count.
    let hash = ((&raw const here).addr() as u64 >> 14).wrapping_mul(crate::hash::GOLDEN_RATIO);
    (hash >> 32) as usize
}
