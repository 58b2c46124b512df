//! Groups and positions of one runtime or cache passed to another.
//!
//! Foreign groups are refused, and a foreign position ends; neither may reach another runtime's
//! memory.
//!
//! A new argument of such a type gets its case here. docs/HAZARDS.md names the tests.

use crate::common::{until, within};
use crate::{assert_whole, cache, filled, runtime};
use lowwater::cache::{CacheBuildError, Op, RejectReason, Visit};
use lowwater::pressure::{BackgroundReclaim, MonitoredReclaimer, Watermarks};
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Reclaimer};
use lowwater_lru_core::MemcgError;
use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

#[test]
fn groups_of_another_runtime_are_foreign() {
    within("strangers", || {
        let (ours, theirs) = (runtime(ByteSize::mib(4)), runtime(ByteSize::mib(4)));
        let (mine, stranger) = (ours.group("tenant").unwrap(), theirs.group("tenant").unwrap());
        let cache = cache(&ours);
        let refused = Cache::<u64, u64>::builder(&ours).weigher(|_, _| ByteSize::ZERO).group(&stranger).build();
        assert!(matches!(refused, Err(CacheBuildError::ForeignGroup(path)) if path == "/tenant"));
        let refused = cache.entry(1).group(&stranger).insert(vec![1]).unwrap_err();
        assert!(matches!(refused.reason, RejectReason::ForeignGroup { .. }) && refused.value == [1]);
        let refused = cache.entry(1).group(&stranger).and_compute(|_| Op::Put(vec![1]));
        assert!(matches!(refused.unwrap_err().reason, RejectReason::ForeignGroup { .. }));
        assert_eq!(cache.entry(1).group(&stranger).or_insert_with(|| vec![7]), [7], "it is returned, and not kept");
        assert_eq!((cache.len(), cache.len_of(&stranger)), (0, 0));
        assert_eq!(ours.end_group(&stranger), Err(MemcgError::Foreign));
        assert_eq!(ours.drop_group(&stranger), Err(MemcgError::Foreign));
        assert_eq!(ours.reclaim(&stranger, ByteSize::MAX), ByteSize::ZERO);
        assert!(catch_unwind(AssertUnwindSafe(|| ours.charge(&stranger, ByteSize::new(1)))).is_err());
        assert!(ours.charge_guard(&stranger, ByteSize::new(1)).is_err());
        assert!(stranger.is_online() && stranger.usage() == ByteSize::ZERO);
        ours.reclaimer().charged(&stranger);
        ours.reclaimer().wake(&stranger, lowwater::pressure::ReclaimReason::Limit);
        let threads = Reclaimer::start(ours.registry(), Arc::new(Fixed::new(1)), Watermarks::RELATIVE).unwrap();
        let threads = Arc::new(threads);
        let reclaimer = MonitoredReclaimer::from(Arc::clone(&threads));
        (10..110).for_each(|n| drop(cache.insert(n, vec![1; 100]).unwrap()));
        cache.entry(9).group(&mine).insert(vec![1; 100]).unwrap();
        let theirs_filled = filled(&theirs, 100);
        // Root groups have the same id in both trees.
        reclaimer.reclaim_to(theirs.root(), ByteSize::ZERO);
        reclaimer.reclaim_to(&mine, ByteSize::ZERO);
        // An evicted entry leaves the index before it is counted. So the test waits for the end of
        // this request, and of the one before it, and the drop joins the thread.
        until("the group is reclaimed from", || threads.stats()[0].freed > 0);
        drop((reclaimer, threads));
        let left = (cache.contains_key(&9), cache.len(), theirs_filled.len());
        assert_eq!(left, (false, 100, 100), "another group was reclaimed from");
        drop(theirs_filled);
        // A group of a dropped runtime is a foreign group, too.
        drop(theirs);
        assert!(cache.entry(1).group(&stranger).insert(vec![1]).is_err());
        cache.entry(1).group(&mine).insert(vec![1]).unwrap();
        assert_whole(&ours, &cache);
    });
}

#[test]
fn a_visit_of_another_cache_ends() {
    within("visits", || {
        let runtime = runtime(ByteSize::mib(64));
        let (large, small, empty) = (filled(&runtime, 20_000), filled(&runtime, 10), cache(&runtime));
        for first in 0..20 {
            let mut at = Visit::new();
            (0..first).for_each(|_| large.visit(&mut at, |_, _| ()));
            let mut seen = BTreeSet::new();
            for turn in 0.. {
                if at.is_done() {
                    break;
                }
                assert!(turn < 10_000, "it does not come to an end");
                match turn % 3 {
                    0 => small.visit(&mut at, |key, _| assert!(*key < 10)),
                    1 => empty.visit(&mut at, |_, _| panic!("it is empty")),
                    _ => large.visit(&mut at, |key, _| assert!(seen.insert(*key), "twice")),
                }
            }
            large.visit(&mut at.clone(), |_, _| panic!("all was seen"));
        }
    });
}
