//! Scopes that are leaked, that end in another order than they began, and that belong to another
//! registry.
//!
//! A `NoReclaim` scope counts for its thread and registry only: a leaked one stops reclaim on its
//! thread for ever, and on no other. A `CallbackScope` counts for its thread and all registries.

use crate::common::one_shelf;
use crate::hazard::{at_the_end_of_a_thread, within};
use crate::{reclaimer, tree_and_registry};
use lowwater_lru_core::{ByteSize, NodeId};
use lowwater_shrinker::{CallbackScope, NoReclaim, ShrinkControl};
use std::cell::RefCell;
use std::mem::forget;

const N0: NodeId = NodeId::ZERO;

/// Two implementations that overlap for a `Send` type: naming the method is then ambiguous and does
/// not compile.
trait IsNotSend<Which> {
    fn is_so() {}
}
impl<T: ?Sized> IsNotSend<()> for T {}
struct Sent;
impl<T: ?Sized + Send> IsNotSend<Sent> for T {}

trait IsNotSync<Which> {
    fn is_so() {}
}
impl<T: ?Sized> IsNotSync<()> for T {}
struct Shared;
impl<T: ?Sized + Sync> IsNotSync<Shared> for T {}

#[test]
fn a_scope_belongs_to_its_thread() {
    <NoReclaim<'static> as IsNotSend<_>>::is_so();
    <NoReclaim<'static> as IsNotSync<_>>::is_so();
    <ShrinkControl<'static> as IsNotSync<_>>::is_so();
    <CallbackScope as IsNotSend<_>>::is_so();
    <CallbackScope as IsNotSync<_>>::is_so();
}

#[test]
fn callback_scopes_may_end_late_in_any_order_or_be_leaked() {
    within("callback scopes", || {
        let (_tree, registry, _shelf, registration) = one_shelf();
        let leaks = std::thread::spawn(move || {
            forget(CallbackScope::enter());
            let (first, second) = (CallbackScope::enter(), CallbackScope::enter());
            drop(first);
            assert!(CallbackScope::is_inside());
            drop(second);
            assert!(CallbackScope::is_inside(), "for ever");
            // Not refused although this thread is in a scope: no callback is in flight.
            registration.unregister().unwrap();
        });
        leaks.join().unwrap();
        assert!(!CallbackScope::is_inside());
        assert!(registry.snapshot().shrinkers.is_empty());
        // A scope that was entered outside ends inside a callback, whose own scope continues.
        thread_local! { static OUTER: RefCell<Option<CallbackScope>> = const { RefCell::new(None) } }
        let (tree, registry, shelf, registration) = one_shelf();
        let ends = |_: &mut ShrinkControl<'_>| {
            drop(OUTER.take());
            assert!(CallbackScope::is_inside());
            None
        };
        assert!(shelf.scan.set(Box::new(ends)).is_ok());
        shelf.add(tree.root(), N0, 10);
        OUTER.set(Some(CallbackScope::enter()));
        assert_eq!(registry.drop_caches(), 10);
        assert!(!CallbackScope::is_inside() && registration.stats().panics == 0);
    });
    at_the_end_of_a_thread("callback scopes", || {
        let early = CallbackScope::enter();
        Box::new(move || {
            assert!(CallbackScope::is_inside());
            drop(CallbackScope::enter());
            drop(early);
            assert!(!CallbackScope::is_inside());
        })
    });
}

#[test]
fn a_leaked_scope_does_not_affect_other_threads() {
    within("reclaim beside a leaked scope", || {
        let (tree, registry, shelf, _registration) = one_shelf();
        shelf.add(tree.root(), N0, 100);
        std::thread::scope(|s| {
            let leaks = s.spawn(|| {
                forget(registry.no_reclaim_scope());
                drop(registry.no_reclaim_scope());
                registry.drop_caches()
            });
            assert_eq!(leaks.join().unwrap(), 0, "the thread is in a scope that forbids reclaim");
        });
        assert_eq!(registry.drop_caches(), 100);
        shelf.add(tree.root(), N0, 10);
        // The threads of a reclaimer are not in the scope either.
        let threads = reclaimer(&registry);
        let _ = tree.root().try_charge(ByteSize::mib(2)).unwrap();
        tree.root().set_max(ByteSize::mib(1));
        while shelf.total() > 0 {
            threads.charged(tree.root());
            std::thread::yield_now();
        }
    });
}

#[test]
fn scopes_end_in_any_order() {
    within("scopes", || {
        let (tree, registry, shelf, _registration) = one_shelf();
        let (_, other) = tree_and_registry();
        shelf.add(tree.root(), N0, 100);
        let mut scopes: Vec<_> = (0..10).map(|_| registry.no_reclaim_scope()).collect();
        assert!(registry.first_no_reclaim_scope().is_none());
        for at in [0, 8, 3, 5, 0, 0, 0, 0, 0] {
            drop(scopes.remove(at));
            assert_eq!(registry.drop_caches(), 0, "{} are left", scopes.len());
        }
        // A scope belongs to one registry and does not affect another.
        assert!(other.first_no_reclaim_scope().is_some());
        let elsewhere = other.no_reclaim_scope();
        drop(scopes);
        let first = registry.first_no_reclaim_scope().unwrap();
        assert!(registry.first_no_reclaim_scope().is_none());
        drop(first);
        assert_eq!(registry.drop_caches(), 100);
        drop(elsewhere);
    });
}
