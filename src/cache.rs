//! A keyed cache whose memory belongs to tenants and is reclaimed when memory is short.
//!
//! Start at [`Cache::builder`].
//!
//! | types | purpose |
//! |---|---|
//! | [`Cache`], [`CacheBuilder`] | the cache; its options |
//! | [`Entry`], [`Current`], [`Op`], [`Computed`] | one key: its tenant, its time, a load, or a decision |
//! | [`TenantView`], [`TenantKey`], [`TenantKeyRef`] | keys of a tenant's own |
//! | [`InsertError`], [`RejectReason`], [`CacheBuildError`] | errors |
//! | [`Filled`], [`Origin`] | a loaded value, and whether the cache has it |
//! | [`Hit`], [`Refresh`] | a value that may be stale, and the right to reload it |
//! | [`ExpiryEvent`], [`Lifetime`] | the time of each entry, by [`CacheBuilder::expire_after`] |
//! | [`Pinned`], [`Iter`], [`Visit`] | borrowed values, and walks over all entries |
//! | [`Meta`], [`Loaded`] | saved entries |
//! | [`Eviction`], [`RemovalCause`], [`CacheStats`] | the order of eviction, why an entry left, counters |
//
// ```text
//     get    index (hash, no lock) -> record: count the use, up to a maximum. No group, no counter
//            of the tenant; no list, except in LRU order, where a use moves the record
//     insert weigh -> slot of this node -> under one segment's lock: charge from stock, index, and
//            the list of (group, node). Without stock: charge without the lock (may evict, may
//            reclaim), and try again
//     evict  reclaimer or direct reclaim -> shrinker -> walk of (group, node), oldest first
//            (`policy` gives the order). Used enough since the last walk: kept, younger on its
//            list or on main's. Else: off the list; lock dropped; out of the index; listener;
//            retired. The group is uncharged after each batch
// ```
//
// # Modules, roughly from the lowest to the highest
//
// The order is that of the files, which have no cycle (`ci/layers.sh`); some modules have files on
// several levels: `expiry::reaper` is above `shrink`, and `compaction::state` and
// `load::single_flight` are below `core`.
//
// | module | contents |
// |---|---|
// | `error`, `removal`, `stats` | errors; removal causes; counters |
// | `expiry` | deadlines in four bytes; the clock; computed times; the reaper, a background sweep |
// | `policy` | eviction orders: queues, tenants, miss costs; which ghosts a record leaves |
// | `record` | one cached item: key, value, deadline, charge, use count, links |
// | `core` | the state that the reclaimer works on, too: find, unlink, finish a removal |
// | `shrink`, `trim`, `compaction` | the cache as a shrinker; returning memory to the system |
// | `limits` | limits of a cache: a group of its own, which ends with the cache |
// | `inner`, `shared` | the state that handles share, and their pointer to it |
// | `handle`, `figures` | the public handle; footprint and counts |
// | `lookup`, `pinned` | lookups |
// | `charge`, `payer`, `payment` | charging an insert; the group that is charged; its paid bytes |
// | `insert`, `overwrite`, `entry` | inserting; replacing a value in its place; the public entry API |
// | `load` | single-flight loads; reloads of present entries |
// | `tenant_view` | name spaces: keys that belong to a tenant |
// | `walk`, `save`, `metrics`, `builder` | iteration; saving and loading; metrics; construction |
//
// # The thread that finishes a removal
//
// A record has one handle, which is on a list, or with the thread that took the record off its
// list. One thread removes the record from the index, under the segment's lock; this thread stores
// the removal cause, and takes the handle off the list. A walk that has isolated the record keeps
// the handle. The last owner of the handle finishes the removal: it calls the listener, retires
// the record, and uncharges the group. A single removal uncharges before it calls the listener, a
// walk after each batch. The record's memory is used again after a grace period. Between the end
// of its charge and the reuse of its memory, the record is counted as retired
// (`runtime::retired`).
//
// A change must keep the lock order: segment, then list. A walk holds a list's lock and takes no
// segment's. Weigher, loader, listener, and the values' own `Drop` run without any lock; a value's
// `Clone` runs inside the read side, where it delays the grace period of removed records. Keys'
// `Hash` and `Eq` may run under a segment's lock; if they panic, nothing is changed.
//
// # Records that cannot be found
//
// A key's hash may panic now, or once while the index grew, or differ from the hash at insert. A
// walk that has taken such a record off its list, and does not find the record in the index
// although the record is marked as indexed, searches the whole index and evicts it; if the hash
// panics now, it puts the record back: charged, on a list, and youngest (`put_back.rs`). A sweep
// over the index unlinks the record by its position (`Core::unlink_at`): `clear`, `retain`, the
// reaper, and the drop of a group. Storing each record's hash was rejected: 8 bytes on top of a
// record's 24, for faulty keys only.

mod builder;
mod charge;
mod clear;
mod compaction;
mod core;
mod entry;
mod error;
mod expect;
mod expiry;
mod figures;
mod functions;
mod handle;
mod index_cursors;
mod inner;
mod insert;
mod len_mark;
mod limits;
mod load;
mod lookup;
#[cfg(feature = "metrics")]
mod metrics;
mod overwrite;
mod payer;
mod payment;
mod pinned;
mod policy;
mod put_back;
mod record;
mod removal;
mod retired;
mod save;
mod shared;
mod shrink;
mod stats;
mod tenant_view;
mod trim;
mod walk;

#[cfg(test)]
mod tests;

pub use builder::{CacheBuilder, NoWeigher};
pub use entry::{Computed, Current, Entry, Op};
pub use error::{CacheBuildError, InsertError, RejectReason};
pub use expiry::lifetime::{ExpiryEvent, Lifetime};
pub use handle::Cache;
/// The hash function of keys, unless [`CacheBuilder::hasher`] sets another one.
pub use hashbrown::DefaultHashBuilder;
pub use inner::Weigher;
pub use load::filled::{Filled, Origin};
pub use load::refresh::{Hit, Refresh};
pub use pinned::Pinned;
pub use policy::Eviction;
pub use removal::RemovalCause;
pub use save::{Loaded, Meta};
pub use stats::CacheStats;
pub use tenant_view::{TenantKey, TenantKeyRef, TenantView};
pub use walk::{Iter, Visit};
