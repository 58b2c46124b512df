//! What belongs to a thread cannot be sent from it: said by the compiler, and checked here so that it stays so.

use crate::leaks::Item;
use lowwater_lru_core::chains::{Chain, Chains, Found, Reader};
use lowwater_lru_core::list_lru::Eager;
use lowwater_lru_core::{
    Guard, Index, Isolate, Isolated, ListLru, Memcg, MemcgTree, Prepared, RcuCell, Slab, Unlocked, Verdict, Words,
};

/// Two impls that overlap for a `Send` type, so that naming the method is ambiguous for it, and does not compile.
trait IsNotSend<Which> {
    fn is_so() {}
}
impl<T: ?Sized> IsNotSend<()> for T {}
struct Sent;
impl<T: ?Sized + Send> IsNotSend<Sent> for T {}

fn is_send<T: Send>() {}
fn is_send_and_sync<T: Send + Sync>() {}

#[test]
fn what_belongs_to_a_thread_cannot_leave_it() {
    <Guard as IsNotSend<_>>::is_so();
    <Reader as IsNotSend<_>>::is_so();
    <Isolate<'static, Item> as IsNotSend<_>>::is_so();
    <Verdict<'static> as IsNotSend<_>>::is_so();
    // It holds nothing, and is bound to its call of the callback by a lifetime.
    is_send_and_sync::<Unlocked<'static>>();

    is_send_and_sync::<(Memcg, MemcgTree, RcuCell<u64>, Words)>();
    is_send_and_sync::<(ListLru<Item>, Prepared<'static, Item>, Eager<Item>)>();
    is_send_and_sync::<(Index<super::leaks::Entry>, Slab<super::leaks::Entry>, Chains<super::leaks::Name>)>();
    is_send_and_sync::<(Found<'static, super::leaks::Name>, Chain<'static, super::leaks::Name>)>();
    is_send::<Isolated<Item>>();
}
