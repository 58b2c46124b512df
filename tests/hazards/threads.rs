//! Types that belong to a thread cannot be sent: checked at compile time, so that it stays so.
//!
//! A change of a field could make such a type `Send` without notice. A pin is registered in the
//! read-side state of its thread, which no other thread may write. docs/HAZARDS.md names the test.

use crate::{filled, runtime};
use lowwater::cache::{CacheBuilder, Current, Entry, Iter, Op, Pinned, Visit};
use lowwater::{ByteSize, Cache, InsertError, Runtime};

/// Two impls that overlap for a `Send` type, so that naming the method is ambiguous and does not
/// compile.
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

fn is_send<T: Send>() {}
fn is_send_and_sync<T: Send + Sync>() {}

#[test]
fn pinned_types_are_not_send() {
    type State = hashbrown::DefaultHashBuilder;
    <Pinned<'static, u64, u64, State> as IsNotSend<_>>::is_so();
    <Pinned<'static, u64, u64, State> as IsNotSync<_>>::is_so();
    <Iter<'static, u64, u64, State> as IsNotSend<_>>::is_so();
    <Current<'static, u64, u64> as IsNotSync<_>>::is_so();
    is_send_and_sync::<(Cache<u64, u64>, Runtime, CacheBuilder<u64, u64>, Entry<'static, u64, u64, State>)>();
    is_send_and_sync::<(InsertError<u64>, Visit, lowwater::cache::Op<u64>)>();
    is_send::<Current<'static, u64, u64>>();

    // A `Current` may be sent: another thread reads the value, while this one waits for it to end.
    let runtime = runtime(ByteSize::mib(4));
    let cache = filled(&runtime, 10);
    let cache = &cache;
    let computed = cache.entry(3).and_compute(|current| {
        let current = current.unwrap();
        let length = std::thread::scope(|s| {
            s.spawn(move || {
                cache.clear();
                assert!(current.time_left().is_none());
                (current.value().len(), current.group().clone())
            })
            .join()
            .unwrap()
        });
        assert_eq!(length.0, 100);
        Op::Keep
    });
    computed.unwrap();
}
