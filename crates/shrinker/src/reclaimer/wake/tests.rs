//! Tests of the queue without a thread: the merging of requests, debts without urgency, and the
//! stop. Model checks of its wake-ups are in `reclaimer/loom.rs`.
//!
//! A new field of a request needs a test of its merge.

use super::*;
use lowwater_lru_core::MemcgTree;

/// Returns the targets that are queued after these requests, in order. Callers give each request a
/// target of its own, which shows the requests that were merged.
fn queued(requests: &[(&Memcg, ReclaimReason, u64)]) -> Vec<u64> {
    let queue = WakeQueue::default();
    for &(memcg, reason, target) in requests {
        queue.request(memcg, reason, ByteSize::new(target));
    }
    queue.take_now().iter().map(|request| request.target.get()).collect()
}

#[test]
fn a_request_replaces_only_one_of_its_group_and_kind() {
    let tree = MemcgTree::new(0);
    let [a, b] = ["a", "b"].map(|name| tree.root().create(name).unwrap());
    let (limit, pressure) = (ReclaimReason::Limit, ReclaimReason::Pressure(ByteSize::new(1)));
    assert_eq!(queued(&[(&a, pressure, 90), (&a, pressure, 80)]), [80], "the newer target");
    assert_eq!(queued(&[(&a, pressure, 90), (&b, pressure, 80)]), [90, 80], "another group");
    assert_eq!(queued(&[(&a, limit, 90), (&a, pressure, 80)]), [90, 80], "another kind");
    assert_eq!(queued(&[(&a, limit, 90), (&b, limit, 80), (&a, limit, 70)]), [70, 80], "also if it is not the last");
}

/// The tree's list of hooks may keep a queue for longer than its reclaimer.
#[test]
fn a_stopped_queue_keeps_no_group() {
    let tree = MemcgTree::new(0);
    let group = tree.root().create("g").unwrap();
    let queue = WakeQueue::default();
    let request = || {
        queue.request(&group, ReclaimReason::Limit, ByteSize::ZERO);
        queue.request_soon(&group);
    };
    request();
    queue.stop();
    request();
    let id = group.id();
    group.offline().unwrap();
    drop(group);
    assert!(tree.get(id).is_none());
}

#[test]
fn manual_requests_add_up() {
    let tree = MemcgTree::new(0);
    let by_hand = ReclaimReason::Manual(ByteSize::new(10));
    assert_eq!(queued(&[(tree.root(), by_hand, 90), (tree.root(), by_hand, 85)]), [80]);
}

#[test]
fn the_same_request_is_queued_again_once_it_was_taken() {
    let tree = MemcgTree::new(0);
    let queue = WakeQueue::default();
    for target in [50, 40] {
        queue.request(tree.root(), ReclaimReason::Limit, ByteSize::new(target));
        queue.request(tree.root(), ReclaimReason::Limit, ByteSize::new(1));
        let taken: Vec<_> = queue.take_now().iter().map(|request| request.target.get()).collect();
        assert_eq!(taken, [target], "the second returned at the word before the lock");
    }
}

#[test]
fn many_groups_are_queued_once_each_and_in_order() {
    let tree = MemcgTree::new(0);
    let groups: Vec<_> = (0..100).map(|n| tree.root().create(&std::format!("{n}")).unwrap()).collect();
    let queue = WakeQueue::default();
    for round in 0..3 {
        // In each round the requests are new, replaced, and replaced again.
        for target in [3, 2, 1] {
            for (n, memcg) in groups.iter().enumerate() {
                queue.request(memcg, ReclaimReason::Limit, ByteSize::new(1_000 * n as u64 + target));
                queue.request_soon(memcg);
            }
        }
        let taken = queue.take().expect("nothing has stopped it");
        assert_eq!(taken.len(), 200, "round {round}");
        for (n, memcg) in groups.iter().enumerate() {
            assert_eq!((&taken[n].memcg, taken[n].target), (memcg, ByteSize::new(1_000 * n as u64 + 1)));
            assert_eq!((&taken[100 + n].memcg, taken[100 + n].reason), (memcg, ReclaimReason::Debt));
        }
    }
}

#[test]
fn debts_that_can_wait_are_taken_once_each_and_without_a_target() {
    let tree = MemcgTree::new(0);
    let [a, b] = ["a", "b"].map(|name| tree.root().create(name).unwrap());
    let queue = WakeQueue::default();
    [&a, &b, &a].into_iter().for_each(|memcg| queue.request_soon(memcg));
    let taken = queue.take().expect("nothing has stopped it");
    let groups: Vec<_> = taken.iter().map(|request| request.memcg.clone()).collect();
    assert_eq!(groups, [a, b]);
    assert!(taken.iter().all(|request| (request.reason, request.target) == (ReclaimReason::Debt, ByteSize::MAX)));
    assert!(queue.take_now().is_empty());
}

#[test]
fn a_stopped_queue_returns_none_without_waiting() {
    let tree = MemcgTree::new(0);
    let queue = WakeQueue::default();
    queue.request(tree.root(), ReclaimReason::Limit, ByteSize::ZERO);
    assert!(!queue.is_stopping());
    queue.stop();
    assert!(queue.is_stopping());
    assert!(queue.take().is_none());
    assert!(queue.take_within(core::time::Duration::from_secs(1 << 20)).is_none());
    queue.rest(core::time::Duration::from_secs(1 << 20));
}
