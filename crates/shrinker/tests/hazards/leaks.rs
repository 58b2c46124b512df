//! Leaked registrations, builders and reclaimers (`mem::forget`): each costs its own memory and
//! blocks no other code.
//!
//! `mem::forget` is safe code, so no guarantee may depend on a drop.
//!
//! A change must ensure that other shrinkers are used after the leak, and not only before it.

use crate::common::{one_shelf, Shelf};
use crate::hazard::{in_a_process, within};
use crate::{reclaimer, tree_and_registry};
use lowwater_lru_core::{ByteSize, NodeId};
use lowwater_shrinker::{Job, ReclaimReason, Registry, RegistryConfig};
use std::mem::forget;
use std::sync::Arc;

#[test]
fn leaked_parts_of_a_registry_block_no_other_code() {
    in_a_process("leaks::leaked_parts_of_a_registry_block_no_other_code", || {
        within("reclaim beside leaks", || {
            let (tree, registry, shelf, registration) = one_shelf();
            let group = tree.root().create("group").unwrap();
            for n in 0..3 {
                forget(registry.clone());
                forget(registry.builder("a builder"));
                forget(registry.builder("prepared").alloc().unwrap());
                let leaked = Arc::new(Shelf::new());
                forget(leaked.register(registry.builder("leaked").alloc().unwrap()));
                leaked.add(&group, NodeId::ZERO, 10);
                forget(Job::new(group.clone(), ByteSize::ZERO));
                forget(registry.snapshot());
                forget(RegistryConfig::new(2));

                // A leaked reclaimer's threads keep running, for another tree.
                let (other_tree, other) = tree_and_registry();
                let threads = reclaimer(&other);
                threads.wake(other_tree.root(), ReclaimReason::Limit);
                // Dropped in the first round, so that threads that end are tested as well.
                if n > 0 {
                    forget((threads, other, other_tree));
                }

                shelf.add(&group, NodeId::ZERO, 100);
                assert_eq!(
                    registry.drop_caches(),
                    10 + 100,
                    "a shrinker with a leaked registration still frees its objects"
                );
            }
            assert_eq!(registry.debugfs_names().len(), 4);
            group.offline().unwrap();
            registration.unregister().unwrap();
            // The ids of leaked registrations are not reused.
            let next = registry.builder("next").alloc().unwrap();
            assert_eq!(next.id().get(), 0, "the id of the ended registration is reused");
            drop(next);
            drop(registry);
            let again = Registry::new(&tree, 1);
            assert_eq!(again.drop_caches(), 0);
        });
    });
}
