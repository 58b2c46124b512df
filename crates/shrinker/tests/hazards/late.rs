//! Handles that are dropped, and used, after a thread's thread-locals are destroyed.
//!
//! The library's thread-locals are gone then, so every access to them must have a fallback.

use crate::common::{one_shelf, Shelf};
use crate::hazard::at_the_end_of_a_thread;
use crate::{reclaimer, tree_and_registry};
use lowwater_lru_core::{ByteSize, NodeId};
use lowwater_shrinker::{Job, ReclaimReason, RegistryConfig, Step};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

#[test]
fn a_registry_may_be_dropped_late_on_a_thread() {
    at_the_end_of_a_thread("a registry that is used and dropped", || {
        let (tree, registry, shelf, registration) = one_shelf();
        shelf.add(tree.root(), N0, 1000);
        let prepared = registry.builder("prepared").alloc().unwrap();
        let (mut job, config) = (Job::new(tree.root().clone(), ByteSize::ZERO), RegistryConfig::new(1));
        Box::new(move || {
            assert!(registry.first_no_reclaim_scope().is_some());
            let scope = registry.no_reclaim_scope();
            assert_eq!(registry.drop_caches(), 0);
            drop(scope);
            assert_eq!(registry.drop_caches(), 1000);
            assert_eq!(job.step(&registry, N0, 10), Step::Done);
            let late = Arc::new(Shelf::new());
            let (late_registration, stats) = (late.register(prepared), registry.survey());
            late.add(tree.root(), N0, 5);
            assert_eq!(registry.debugfs_count(late_registration.id()).unwrap(), "0 5\n");
            registration.unregister().unwrap();
            drop((late_registration, stats, config, job));
            drop(registry);
            drop(tree);
        })
    });
    at_the_end_of_a_thread("threads that are started and stopped", || {
        let (tree, registry) = tree_and_registry();
        let early = reclaimer(&registry);
        Box::new(move || {
            early.wake(tree.root(), ReclaimReason::Limit);
            let late = reclaimer(&registry);
            drop((late, early));
            drop((registry, tree));
        })
    });
}
