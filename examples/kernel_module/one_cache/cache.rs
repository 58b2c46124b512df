// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache of numbered values. This one file is compiled for the kernel's `list_lru`, and for
//! lowwater's lists in the kernel and in user space (`crates/shrinker/tests/one_cache.rs`).
//!
//! `lists` brings the lists, the allocation of an entry and the shrinker's interface, and `sys` the
//! other differences: a lock, a table and a clock. Each build has its own, with the same names. All
//! code must be safe Rust: `ci/rust-kernel.sh` checks that.
//!
//! An entry has up to three owners: its slot of the index, its list, and readers. The lock of a
//! shard of the index is taken before the lock of a list. A walk, which holds the list's lock, only
//! isolates; the slots of isolated entries are emptied after it.

use super::lists::{self, Count, Group, Isolated, ListLru, NodeId, Ref, Scan, ShrinkControl, Shrinker};
use super::sys::{now_ns, try_table, Lock, NoMemory, Table};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Live entries, for the checks at the end of a load.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// A cached value.
pub(crate) struct Entry {
    number: usize,
    value: u64,
    /// Whether the entry was read since a walk last saw it.
    used: AtomicBool,
}

impl Entry {
    fn new(number: usize, value: u64) -> Self {
        ALIVE.fetch_add(1, Relaxed);
        Self { number, value, used: AtomicBool::new(false) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Relaxed);
    }
}

type Slots = Table<Option<Ref<Entry>>>;

/// The cache: an index of slots by number, and lists by age.
pub(crate) struct Cache {
    shards: Table<Lock<Slots>>,
    pub(crate) entries: ListLru<Entry>,
}

/// The number of locks of the index: any number; with four times the workers of `load.rs` two of
/// them seldom wait for each other.
const SHARDS: usize = 16;

impl Cache {
    /// Creates a cache of up to `numbers` values, whose entries are on these lists.
    pub(crate) fn try_new(numbers: usize, entries: ListLru<Entry>) -> Result<Self, NoMemory> {
        let shard = || Lock::try_new(try_table(numbers.div_ceil(SHARDS), || Ok(None))?);
        Ok(Self { shards: try_table(SHARDS, shard)?, entries })
    }

    /// Runs `f` with the slot of a number; `None` if there is no such slot.
    fn with_slot<R>(&self, number: usize, f: impl FnOnce(&mut Option<Ref<Entry>>) -> R) -> Option<R> {
        let mut slots = self.shards.get(number % SHARDS)?.lock();
        slots.get_mut(number / SHARDS).map(f)
    }

    /// Caches a value, if there is none of that number. Returns whether it was cached.
    pub(crate) fn insert(&self, number: usize, value: u64) -> Result<bool, NoMemory> {
        let entry = lists::alloc(&self.entries, Entry::new(number, value))?;
        let added = self.with_slot(number, |slot| {
            let added = slot.is_none() && lists::add(&self.entries, entry.clone(), &entry);
            if added {
                *slot = Some(entry.clone());
            }
            added
        });
        Ok(added.unwrap_or(false))
    }

    /// Returns the value of a number.
    pub(crate) fn get(&self, number: usize) -> Option<u64> {
        let entry = self.with_slot(number, |slot| slot.clone())??;
        entry.used.store(true, Relaxed);
        Some(entry.value)
    }

    /// Removes the value of a number. Returns whether there was one.
    pub(crate) fn remove(&self, number: usize) -> bool {
        // An entry that a walk has isolated is dropped by the walk.
        let removed = self.with_slot(number, |slot| slot.take().map(|it| (self.entries.del(&it), it)));
        removed.flatten().is_some()
    }

    /// Makes a value the youngest. Returns whether it was on a list, and is on one again; without
    /// memory for that list the value is removed.
    pub(crate) fn promote(&self, number: usize) -> bool {
        let promoted = self.with_slot(number, |slot| {
            let entry = slot.as_ref()?;
            let handle = self.entries.del(entry)?;
            match lists::add(&self.entries, handle, entry) {
                true => Some(None),
                // No walk would find it.
                false => Some(slot.take()),
            }
        });
        // A removed entry is dropped here, without a lock.
        matches!(promoted, Some(Some(None)))
    }

    /// Removes and adds the entries of the first `span` numbers from `first` on, `pairs` times in
    /// all. Returns the number of pairs and their time. For measurements: without the index.
    pub(crate) fn pairs(&self, first: usize, span: usize, pairs: usize) -> Result<(usize, u64), NoMemory> {
        let mut number = first;
        let entries = try_table(span, || {
            let entry = self.with_slot(number, |slot| slot.clone());
            number += 1;
            Ok(entry.flatten())
        })?;
        let (mut at, mut done) = (0, 0);
        let begin = now_ns();
        for _ in 0..pairs {
            if let Some(entry) = &entries[at] {
                if let Some(handle) = self.entries.del(entry) {
                    done += usize::from(lists::add(&self.entries, handle, entry));
                }
            }
            at = if at + 1 == span { 0 } else { at + 1 };
        }
        Ok((done, now_ns() - begin))
    }

    /// Evicts from the list of one group on one node: visits up to `nr_to_scan` entries. Returns
    /// the number of evicted entries and that of the visited ones.
    pub(crate) fn evict(&self, group: Group<'_>, node: NodeId, nr_to_scan: u64) -> (u64, u64) {
        let (mut left, mut old) = (nr_to_scan, Isolated::new());
        self.entries.walk_one(group, node, &mut left, |it| {
            // A second chance for entries that were read.
            match it.item().used.swap(false, Relaxed) {
                true => it.rotate(),
                false => it.isolate(&mut old),
            }
        });
        let evicted = old.len() as u64;
        for entry in old {
            let slot = self.with_slot(entry.number, |slot| match slot {
                Some(same) if lists::is_same(same, &entry) => slot.take(),
                _ => None,
            });
            // Dropped without a lock, as is `entry`.
            drop(slot);
        }
        (evicted, nr_to_scan - left)
    }

    /// Returns the number of values on lists.
    pub(crate) fn listed(&self) -> u64 {
        lists::count(&self.entries)
    }

    /// Returns the number of entries that exist, of all caches of the program.
    pub(crate) fn alive() -> usize {
        ALIVE.load(Relaxed)
    }
}

impl Shrinker for Cache {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.entries.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let (evicted, visited) = self.evict(sc.memcg(), sc.node(), sc.nr_to_scan());
        sc.set_nr_scanned(visited);
        Scan::Freed(evicted)
    }
}
