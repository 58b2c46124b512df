//! Records that a walk has isolated to evict them, and that are not found in the index.
//!
//! The key's hash panics now, has panicked while the index grew, or has changed since the insert;
//! or the insert is not complete yet. A change must ensure that a record that stays in the index is
//! on a list again, and that each other one is uncharged once.

use std::hash::{BuildHasher, Hash};

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_rcu::{pin, Guard};

use super::core::Core;
use super::index_cursors::IndexCursors;
use super::record::{Handle, Record};
use super::removal::RemovalCause;

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Removes a record from the index by searching all of it; the handle is the caller's. Returns
    /// false if another thread has removed it.
    fn remove_from_index_anywhere(&self, record: &Record<K, V>, cause: RemovalCause, guard: &Guard) -> bool {
        let is_it = |there: &Record<K, V>| std::ptr::eq(there, record);
        // Repeated, as a segment may be split during the search, so that the search misses the
        // record.
        while record.is_indexed() {
            if IndexCursors::of(&self.index, guard).any(|at| {
                let removed = |there: &Record<K, V>| self.set_removed(there, cause);
                self.index.remove_shown(&at, guard, is_it, removed).is_some()
            }) {
                return true;
            }
        }
        false
    }

    /// Returns whether no lookup finds a record that is in the index, although its key has a hash:
    /// the hash has changed, or has panicked while the index grew.
    fn is_hidden(&self, record: &Record<K, V>, guard: &Guard) -> bool {
        let is_it = |there: &Record<K, V>| std::ptr::eq(there, record);
        self.hash_again(&record.key).is_some_and(|hash| self.index.with(hash, guard, is_it, |_| ()).is_none())
    }

    /// Puts a record that a walk took off a list, and that was not found in the index by its hash,
    /// back on a list of its queue: it stays charged, and the next walk tries again. Returns the
    /// bytes to uncharge if the removal was finished instead, for this `cause` if no lookup finds
    /// the record, or because another thread has removed it from the index meanwhile, or there is
    /// no memory for the list.
    pub(super) fn put_back(&self, handle: Handle<K, V>, cause: RemovalCause, memcg: &Memcg) -> Option<ByteSize> {
        let (node, guard) = (handle.node(), pin());
        let mut record = self.index.borrow(&handle, &guard);
        // Its insert is about to end, or another one has moved it to another segment.
        while record.is_none() && handle.is_indexed() {
            std::thread::yield_now();
            record = self.index.borrow(&handle, &guard);
        }
        let is_indexed = record.is_some_and(Record::is_indexed);
        let handle = match (record, is_indexed) {
            (Some(record), true) if self.is_hidden(record, &guard) => {
                let _or_another_thread = self.remove_from_index_anywhere(record, cause, &guard);
                Some(handle)
            }
            (Some(record), true) => match self.queues.add(handle, memcg, node, &guard) {
                Ok(()) => {
                    // A thread that unlinked the record before it was back on its list left the
                    // handle to this thread; a thread that unlinks it from here on finds it on the
                    // list.
                    let is_indexed = record.is_indexed();
                    let handle = (!is_indexed).then(|| self.queues.del(record)).flatten();
                    handle.map(|(handle, _)| handle)
                }
                Err(error) => {
                    let handle = error.into_handle();
                    let _somebody_else = self.remove_from_index_anywhere(record, cause, &guard);
                    Some(handle)
                }
            },
            _ => Some(handle),
        };
        drop(guard);
        let handle = handle?;
        let freed = self.end_charge(&handle, handle.charge(), memcg);
        self.finish_removal(handle);
        Some(freed)
    }
}
