//! The processors: their number, and the one that runs the calling thread.
//!
//! The numbers only spread threads over slots and shards, so a wrong or outdated number costs speed
//! and nothing else; no caller may rely on it for correctness. `hint` is on fast paths (the stock
//! of a group, the shards of a list), so it must stay a few instructions.

/// Returns the number of processors that this thread may use, or the embedder's number: the number
/// of slots worth having in a per-processor structure. [`hint`] may be higher (on systems other
/// than Linux it is a hash), so it is reduced modulo the number of slots.
pub fn count() -> usize {
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    {
        std::thread::available_parallelism().map_or(1, core::num::NonZero::get)
    }
    #[cfg(all(not(feature = "std"), feature = "embedder", not(lowwater_loom)))]
    {
        crate::embedder::hooks::__lowwater_processors()
    }
    // Without `std` and embedder the number is unknown, and a model check should be small.
    #[cfg(any(not(any(feature = "std", feature = "embedder")), lowwater_loom))]
    {
        1
    }
}

/// Returns the number of processors on which this process may run, on Linux: the largest number
/// found so far for its main thread or for a thread that called this function. So structures that
/// all threads share are not sized by a thread that is bound to one processor. Elsewhere that of
/// [`count`]. Allocates nothing on Linux.
pub fn allowed() -> usize {
    #[cfg(all(feature = "std", target_os = "linux", not(lowwater_loom)))]
    {
        use core::sync::atomic::{AtomicUsize, Ordering};
        use rustix::thread::{sched_getaffinity, Pid};
        static LARGEST: AtomicUsize = AtomicUsize::new(1);
        // The process's id is that of its main thread. Miri knows the calling thread only.
        let main = if cfg!(miri) { None } else { Pid::from_raw(std::process::id() as i32) };
        let found = largest([sched_getaffinity(main), sched_getaffinity(None)]);
        // Relaxed: pairs with nothing, as no other data depends on the number.
        LARGEST.fetch_max(found, Ordering::Relaxed).max(found)
    }
    #[cfg(not(all(feature = "std", target_os = "linux", not(lowwater_loom))))]
    {
        count()
    }
}

/// Returns the number of processors in the largest of these sets, 1 at least.
#[cfg(all(feature = "std", target_os = "linux", not(lowwater_loom)))]
fn largest(affinities: [rustix::io::Result<rustix::thread::CpuSet>; 2]) -> usize {
    let count = |affinity: rustix::io::Result<rustix::thread::CpuSet>| match affinity {
        Ok(set) => set.count() as usize,
        // The kernel supports more processors than the set has bits.
        Err(rustix::io::Errno::INVAL) => rustix::thread::CpuSet::MAX_CPU,
        Err(_) => 1,
    };
    affinities.into_iter().map(count).fold(1, usize::max)
}

/// Returns the operating system's number of the processor that runs this thread, on Linux (in 1 to
/// 2 ns) and with an embedder.
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

/// Calls of [`hint`] on a thread that return the same number, before the processor is read again.
#[cfg(all(feature = "std", not(lowwater_loom)))]
const READ_EVERY: u32 = 32;

#[cfg(all(feature = "std", not(lowwater_loom)))]
std::thread_local! {
    /// The last hint, and the calls that still return it. Without a destructor, so that it is
    /// available in the destructors of other thread-locals.
    static HINT: core::cell::Cell<(u32, u32)> = const { core::cell::Cell::new((0, 0)) };
}

/// Returns a number that concurrently running threads rarely share: the processor's, or else one
/// derived from the thread's id. Always 0 where neither is known (without `std` and embedder).
///
/// With `std` the processor is read at every 32nd call, as reading it costs 25 instructions: a
/// thread that moves to another processor notices this a little later.
#[inline]
pub fn hint() -> usize {
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    {
        let (hint, calls) = HINT.get();
        if calls == 0 {
            return read_hint();
        }
        HINT.set((hint, calls - 1));
        hint as usize
    }
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    {
        current().unwrap_or(0)
    }
}

/// Reads the number, and caches it for the next calls of [`hint`].
#[cfg(all(feature = "std", not(lowwater_loom)))]
#[cold]
pub fn read_hint() -> usize {
    let hint = current().unwrap_or_else(thread) as u32;
    HINT.set((hint, READ_EVERY - 1));
    hint as usize
}

/// Returns [`hint`]: without `std`, no number is cached.
#[cfg(any(not(feature = "std"), lowwater_loom))]
pub fn read_hint() -> usize {
    hint()
}

#[cfg(all(feature = "std", not(lowwater_loom)))]
fn thread() -> usize {
    use core::hash::{BuildHasher as _, BuildHasherDefault};
    let hasher = BuildHasherDefault::<std::hash::DefaultHasher>::default();
    hasher.hash_one(std::thread::current().id()) as usize
}

/// Returns a number that is mostly constant for a thread, where neither processor nor thread id is
/// available: derived from the address of its stack.
#[inline]
pub fn stack() -> usize {
    let here = 0_u8;
    // Stacks are 16 KiB or a multiple of that apart, so the lower 14 bits tell threads apart the
    // least; the product's upper half depends on all other bits.
    let hash = ((&raw const here).addr() as u64 >> 14).wrapping_mul(crate::hash::GOLDEN_RATIO);
    (hash >> 32) as usize
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    extern crate std;

    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use std::sync::Barrier;

    /// Calls `number` on 64 threads that exist at the same time.
    fn on_64_threads(number: fn() -> usize) -> Vec<usize> {
        let barrier = Barrier::new(64);
        let on_thread = || {
            let number = number();
            barrier.wait();
            number
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..64).map(|_| scope.spawn(on_thread)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_thread_bound_to_a_processor_finds_that_one_alone() {
        use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
        let all = sched_getaffinity(None).expect("a thread may read its own affinity");
        let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
        for cpu in own {
            // Binding ends with the thread.
            let bound = std::thread::spawn(move || {
                let mut one = CpuSet::new();
                one.set(cpu);
                sched_setaffinity(None, &one).expect("the processor is in the allowed set");
                (current(), hint(), count())
            });
            assert_eq!(bound.join().expect("no panic"), (Some(cpu), cpu, 1));
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_thread_that_moves_gets_the_new_hint_a_little_later() {
        use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
        let all = sched_getaffinity(None).expect("a thread may read its own affinity");
        let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
        let &[from, .., to] = &own[..] else { return };
        let bind = |cpu| {
            let mut one = CpuSet::new();
            one.set(cpu);
            sched_setaffinity(None, &one).expect("the processor is in the allowed set");
        };
        let hints = std::thread::spawn(move || {
            bind(from);
            let first = hint();
            bind(to);
            let hints: Vec<usize> = (0..READ_EVERY).map(|_| hint()).collect();
            bind(from);
            (first, hints, read_hint(), hint())
        });
        let (first, hints, read, next) = hints.join().expect("no panic");
        let (last, cached) = hints.split_last().expect("32 hints");
        assert!(first == from && cached.iter().all(|hint| *hint == from), "{cached:?}");
        assert_eq!((*last, read, next), (to, from, from));
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn the_count_is_that_of_the_thread_and_the_allowed_number_that_of_the_process() {
        use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
        let all = sched_getaffinity(None).expect("a thread may read its own affinity");
        let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
        // A quota of the control group may be lower than the number of processors.
        let most = count();
        assert!((1..=own.len()).contains(&most), "{most} of {}", own.len());
        for nr in 1..=own.len() {
            let mut some = CpuSet::new();
            own[..nr].iter().for_each(|&cpu| some.set(cpu));
            let bound = std::thread::spawn(move || {
                sched_setaffinity(None, &some).expect("the processors are in the allowed set");
                (count(), allowed())
            });
            assert_eq!(bound.join().expect("no panic"), (most.min(nr), own.len()));
        }
    }

    /// The threads of a server each bind themselves to a processor, the main thread too or not.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn the_allowed_number_is_the_largest_that_was_seen() {
        use rustix::io::Errno;
        use rustix::thread::CpuSet;
        let of = |cpus: usize| {
            let mut set = CpuSet::new();
            (0..cpus).for_each(|cpu| set.set(cpu));
            Ok(set)
        };
        assert_eq!(largest([of(1), of(64)]), 64);
        assert_eq!(largest([of(2), of(1)]), 2);
        assert_eq!(largest([of(1), Err(Errno::INVAL)]), CpuSet::MAX_CPU, "more than the set has bits");
        assert_eq!(largest([Err(Errno::PERM), Err(Errno::SRCH)]), 1);
    }

    /// On any system: the standard library's number.
    #[test]
    fn the_count_is_that_of_the_standard_library() {
        assert_eq!(count(), std::thread::available_parallelism().map_or(1, core::num::NonZero::get));
    }

    #[test]
    fn a_thread_keeps_its_number_and_shares_it_with_no_other() {
        assert_eq!(thread(), thread());
        let all: BTreeSet<usize> = on_64_threads(thread).into_iter().collect();
        assert_eq!(all.len(), 64);
    }

    #[test]
    fn stacks_spread_over_slots() {
        let slots: BTreeSet<usize> = on_64_threads(stack).into_iter().map(|number| number % 64).collect();
        // Random numbers take 40 of 64 slots on average.
        assert!(slots.len() >= 20, "{} slots for 64 stacks", slots.len());
    }
}
