//! The lines about commands that `watch` shows, in memcached's shape. `cfd` is the number of the
//! connection, as in `stats conns`.
//!
//! A change must ensure that a command builds no line unless a client watches its kind of events:
//! the check costs one load.

use crate::connections::ConnectionEntry;
use crate::protocol::event::Event;
use crate::protocol::expiry::Expiry;
use crate::protocol::item::SLAB_CLASS;
use crate::protocol::uri::uri_encoded;
use crate::store::Store;

/// Publishes a read of `key`, if clients watch reads. `length` is that of the found value. A value
/// that has expired or was flushed is `not_found`.
#[inline]
pub fn fetched(store: &Store, entry: &ConnectionEntry, key: &[u8], length: Option<usize>) {
    if store.watchers().want(Event::Fetch) {
        publish_fetched(store, entry, key, length);
    }
}

#[cold]
fn publish_fetched(store: &Store, entry: &ConnectionEntry, key: &[u8], length: Option<usize>) {
    let (status, class) = if length.is_some() { ("found", SLAB_CLASS) } else { ("not_found", 0) };
    let (key, connection, size) = (uri_encoded(key), entry.number(), length.unwrap_or(0));
    store.watchers().publish(
        Event::Fetch,
        format_args!("type=item_get key={key} status={status} clsid={class} cfd={connection} size={size}"),
    );
}

/// Publishes a store under `key`, if clients watch stores. `status` and `command` are memcached's
/// words.
#[inline]
pub fn stored(store: &Store, entry: &ConnectionEntry, key: &[u8], words: [&str; 2], expiry: Expiry, length: usize) {
    if store.watchers().want(Event::Mutation) {
        publish_stored(store, entry, key, words, expiry, length);
    }
}

#[cold]
fn publish_stored(
    store: &Store,
    entry: &ConnectionEntry,
    key: &[u8],
    [status, command]: [&str; 2],
    expiry: Expiry,
    length: usize,
) {
    let ttl = expiry.seconds_left().unwrap_or(0);
    let class = if matches!(status, "too_large" | "no_memory") { 0 } else { SLAB_CLASS };
    let (key, connection) = (uri_encoded(key), entry.number());
    store.watchers().publish(
        Event::Mutation,
        format_args!(
            "type=item_store key={key} status={status} cmd={command} ttl={ttl} clsid={class} cfd={connection} \
             size={length}"
        ),
    );
}

/// Publishes the removal of the value under `key`, if clients watch removals.
pub fn deleted(store: &Store, key: &[u8], command: &str, length: usize) {
    if store.watchers().want(Event::Deletion) {
        let key = uri_encoded(key);
        store.watchers().publish(
            Event::Deletion,
            format_args!("type=deleted key={key} cmd={command} clsid={SLAB_CLASS} size={length}"),
        );
    }
}
