//! The shortage of memory while a client does not finish a value.
//!
//! A value that is being received takes memory that cannot be evicted. When a store or another
//! reception finds no room, the connection is closed if its value has stalled
//! ([`has_stalled`](crate::decoder::Decoder::has_stalled)).
//!
//! A change must ensure that a connection which has received no such value holds no room for the
//! wait.

use std::future::Future;
use std::pin::Pin;
use std::task::{ready, Context, Poll};

use tokio::sync::futures::Notified;

use crate::store::Store;

/// The reason for the end of such a connection.
pub const STALLED: &str = "the client does not send the rest of a value, and other clients need the memory";

/// The wait for a shortage of memory.
pub struct Shortage<'a> {
    store: &'a Store,
    /// The next notification; `None` before the first poll.
    next: Option<Pin<Box<Notified<'a>>>>,
}

impl<'a> Shortage<'a> {
    pub fn new(store: &'a Store) -> Self {
        Self { store, next: None }
    }

    /// Polls whether there was a shortage since the last poll. The task is woken by the next one in
    /// either case.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let next = self.next.get_or_insert_with(|| Box::pin(self.store.room_shortage()));
        ready!(next.as_mut().poll(cx));
        next.set(self.store.room_shortage());
        // A `Notified` waits from its first poll on. If it is ready at once, the task runs again.
        if next.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(())
    }
}
