//! From key to entry: hash tables behind reader-writer locks, one of which a key's hash chooses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use equivalent::Equivalent;
use hashbrown::hash_table::{self, HashTable};
use lowwater_lru_core::{AddError, NodeId};
use parking_lot::RwLock;

use super::entry::Entry;
use super::queues::{Queue, Queues};

/// Shards for each processor: two threads meet in one seldom.
const SHARDS_PER_CPU: usize = 4;
/// Entries taken out under one hold of a shard's lock when all must go.
const DRAIN_BATCH: usize = 64;

type Table<K, V> = HashTable<Arc<Entry<K, V>>>;
type Shard<K, V> = CachePadded<RwLock<Table<K, V>>>;
/// The entry whose place another took, if there was one.
type Replaced<K, V> = Option<Arc<Entry<K, V>>>;

/// The tables. An entry is put on its list when it is put in, and taken off when it is taken out, under the shard's lock.
pub(super) struct Index<K, V> {
    /// Entries in all shards.
    len: AtomicUsize,
    shards: Box<[Shard<K, V>]>,
}

/// What there was in the way of a [`put`](Index::put).
pub(super) enum Refused<K, V> {
    /// Not what was expected under the key; the caller looks again.
    Changed(Arc<Entry<K, V>>),
    /// The list did not take it.
    List(AddError<Arc<Entry<K, V>>>),
}

/// What must be under the key for a [`put`](Index::put) to happen.
pub(super) enum Expect<'a, K, V> {
    /// Whatever there is.
    Any,
    /// Nothing.
    Vacant,
    /// This entry, and no other.
    Same(&'a Arc<Entry<K, V>>),
}

impl<K: Send + Sync, V: Send + Sync> Index<K, V> {
    pub(super) fn new() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = (cpus * SHARDS_PER_CPU).next_power_of_two();
        Self { len: AtomicUsize::new(0), shards: (0..shards).map(|_| CachePadded::default()).collect() }
    }

    pub(super) fn get<Q: Equivalent<K> + ?Sized>(&self, hash: u64, key: &Q) -> Option<Arc<Entry<K, V>>> {
        self.shard(hash).read().find(hash, |entry| key.equivalent(&entry.key)).cloned()
    }

    /// Puts `entry` in, and on `lru`'s list of its group on `node`. Returns the one it replaced, which is off its list.
    pub(super) fn put(
        &self,
        entry: Arc<Entry<K, V>>,
        expect: &Expect<'_, K, V>,
        queues: &Queues<K, V>,
        node: NodeId,
    ) -> Result<Replaced<K, V>, Refused<K, V>>
    where
        K: Eq,
    {
        let mut table = self.shard(entry.hash).write();
        match table.entry(entry.hash, |there| there.key == entry.key, |there| there.hash) {
            hash_table::Entry::Occupied(mut there) => {
                let expected = match expect {
                    Expect::Any => true,
                    Expect::Vacant => false,
                    Expect::Same(same) => Arc::ptr_eq(there.get(), same),
                };
                if !expected {
                    return Err(Refused::Changed(entry));
                }
                add(&entry, queues, node)?;
                queues.del(there.get());
                Ok(Some(std::mem::replace(there.get_mut(), entry)))
            }
            hash_table::Entry::Vacant(vacant) => {
                if matches!(expect, Expect::Same(_)) {
                    return Err(Refused::Changed(entry));
                }
                add(&entry, queues, node)?;
                vacant.insert(entry);
                self.len.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    /// Takes the entry of `key` out, and off its list.
    pub(super) fn remove<Q>(&self, hash: u64, key: &Q, queues: &Queues<K, V>) -> Option<Arc<Entry<K, V>>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let mut table = self.shard(hash).write();
        let (entry, _) = table.find_entry(hash, |entry| key.equivalent(&entry.key)).ok()?.remove();
        self.len.fetch_sub(1, Ordering::Relaxed);
        queues.del(&entry);
        Some(entry)
    }

    /// Takes this very entry out, and off its list if it is on one. False if somebody else has taken it out.
    pub(super) fn remove_same(&self, entry: &Arc<Entry<K, V>>, queues: &Queues<K, V>) -> bool {
        let mut table = self.shard(entry.hash).write();
        let Ok(there) = table.find_entry(entry.hash, |there| Arc::ptr_eq(there, entry)) else { return false };
        let (there, _) = there.remove();
        self.len.fetch_sub(1, Ordering::Relaxed);
        let off_list = queues.del(&there);
        drop(table);
        drop(off_list);
        true
    }

    /// Takes everything out and off its list, and shows it to `gone`, a few entries at a time and without a lock.
    pub(super) fn drain(&self, queues: &Queues<K, V>, mut gone: impl FnMut(Arc<Entry<K, V>>)) {
        for shard in &self.shards {
            loop {
                let batch: Vec<_> = {
                    let mut table = shard.write();
                    let batch: Vec<_> = table.iter().take(DRAIN_BATCH).cloned().collect();
                    for entry in &batch {
                        if let Ok(there) = table.find_entry(entry.hash, |there| Arc::ptr_eq(there, entry)) {
                            there.remove();
                            self.len.fetch_sub(1, Ordering::Relaxed);
                            queues.del(entry);
                        }
                    }
                    if table.is_empty() {
                        table.shrink_to(0, |entry| entry.hash);
                    }
                    batch
                };
                if batch.is_empty() {
                    break;
                }
                batch.into_iter().for_each(&mut gone);
            }
        }
    }

    /// Puts an entry that a walk took off probation on the main queue, unless somebody has taken it out of the index.
    pub(super) fn promote(&self, entry: &Arc<Entry<K, V>>, queues: &Queues<K, V>, node: NodeId) {
        // Who takes it out needs the lock for writing, so it stays in while we have it for reading; and no walk sees it before it is
        // on a list.
        let table = self.shard(entry.hash).read();
        if table.find(entry.hash, |there| Arc::ptr_eq(there, entry)).is_some() {
            entry.set_queue(Queue::Main);
            if queues.add(entry, node).is_err() {
                // No list to be had: it is off all lists, and found by lookups until it is removed or expires.
                entry.set_queue(Queue::Probation);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) // Relaxed: a number to look at.
    }

    /// The high half chooses the shard; the tables use the low bits and the top seven.
    fn shard(&self, hash: u64) -> &RwLock<Table<K, V>> {
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
    }
}

fn add<K: Send + Sync, V: Send + Sync>(
    entry: &Arc<Entry<K, V>>,
    queues: &Queues<K, V>,
    node: NodeId,
) -> Result<(), Refused<K, V>> {
    queues.add(entry, node).map_err(Refused::List)
}
