//! Which processor runs us: a hint where to look first, never more.

/// A number below which [`current`] mostly stays: how many slots of something are worth having.
pub(crate) fn count() -> usize {
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    {
        std::thread::available_parallelism().map_or(1, core::num::NonZero::get)
    }
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    {
        1
    }
}

/// The number of the processor that runs this thread, 1-2 ns.
#[cfg(all(feature = "std", target_os = "linux", not(lowwater_loom)))]
#[inline]
pub(crate) fn current() -> usize {
    rustix::thread::sched_getcpu()
}

/// A number that stands for this thread, where nobody tells the processor.
#[cfg(all(feature = "std", not(target_os = "linux"), not(lowwater_loom)))]
#[inline]
pub(crate) fn current() -> usize {
    use core::hash::{BuildHasher as _, BuildHasherDefault};
    let hasher = BuildHasherDefault::<std::hash::DefaultHasher>::default();
    hasher.hash_one(std::thread::current().id()) as usize
}

/// One processor: without std nobody is there to ask, and a model check is small.
#[cfg(any(not(feature = "std"), lowwater_loom))]
#[inline]
pub(crate) fn current() -> usize {
    0
}
