//! Types that belong to a thread cannot be sent: enforced by the compiler, and checked here so that
//! it stays so.
//!
//! The types of the first list must not become `Send` by a change of their fields; those of the
//! others must stay `Send`, or `Sync`, as users share them between threads.

use crate::leaks::Item;
use lowwater_base::ZeroedAtomics;
use lowwater_lru_core::list_lru::baseline::EagerListLru;
use lowwater_lru_core::{Isolate, Isolated, ListLru, LruStatus, Memcg, MemcgTree, Prepared, Unlocked};
use lowwater_rcu::{Guard, RcuCell};
use lowwater_store::hash_chains::{ChainIter, Found, HashChains, Reader};
use lowwater_store::{ExtendibleIndex, Slab};

/// Two implementations that overlap for a `Send` type: naming the method is then ambiguous and does
/// not compile.
trait IsNotSend<Which> {
    fn is_so() {}
}
impl<T: ?Sized> IsNotSend<()> for T {}
struct Sent;
impl<T: ?Sized + Send> IsNotSend<Sent> for T {}

fn is_send<T: Send>() {}
fn is_send_and_sync<T: Send + Sync>() {}

#[test]
fn thread_bound_types_are_not_send() {
    <Guard as IsNotSend<_>>::is_so();
    <Reader as IsNotSend<_>>::is_so();
    <Isolate<'static, Item> as IsNotSend<_>>::is_so();
    <LruStatus<'static> as IsNotSend<_>>::is_so();
    // `Send` is harmless: it owns nothing, and a lifetime binds it to the call of the callback.
    is_send_and_sync::<Unlocked<'static>>();

    is_send_and_sync::<(Memcg, MemcgTree, RcuCell<u64>, ZeroedAtomics)>();
    is_send_and_sync::<(ListLru<Item>, Prepared<'static, Item>, EagerListLru<Item>)>();
    is_send_and_sync::<(ExtendibleIndex<super::leaks::Entry>, Slab<super::leaks::Entry>, HashChains<super::leaks::Name>)>(
    );
    is_send_and_sync::<(Found<'static, super::leaks::Name>, ChainIter<'static, super::leaks::Name>)>();
    is_send::<Isolated<Item>>();
}
