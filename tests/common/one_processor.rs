//! Binds a thread to one processor: each processor has stocks of its own, so what is evicted
//! depends on the processors between which the thread migrates.
//!
//! A change must ensure that only the calling thread, and threads that it then creates, are bound.

/// Binds this thread to one of the processors on which it may run. On Linux; elsewhere it may
/// migrate.
pub fn stay_on_one_processor() {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
        let allowed = sched_getaffinity(None).expect("a thread may read its own affinity");
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).expect("a thread runs on a processor"));
        sched_setaffinity(None, &one).expect("the processor is allowed");
    }
}
