//! Records that a walk has isolated to evict them, and that are not found in the index.
//!
//! The key's hash panics now, has panicked while the index grew, or has changed since the insert;
//! or the insert is not complete yet. A record whose key cannot be hashed now is put back without a
//! search of the index: there may be many such records, and each walk meets them.
//!
//! A change must ensure that a record that stays in the index is on a list again, and that each
//! other one is uncharged once.

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
        let handle = if self.is_hidden(&handle, &guard) {
            let _or_another_thread = self.remove_from_index_anywhere(&handle, cause, &guard);
            handle
        } else {
            // Another thread that unlinks the record finds it on the list, or leaves the handle to
            // this thread: then the record is in the index no more.
            let lists = self.queues.lists(handle.queue());
            match lists.add_if(handle, memcg, node, &guard, Record::is_indexed) {
                Ok(taken) => taken?,
                Err(error) => {
                    let handle = error.into_handle();
                    let _or_another_thread = self.remove_from_index_anywhere(&handle, cause, &guard);
                    handle
                }
            }
        };
        drop(guard);
        let freed = self.end_charge(&handle, handle.charge(), memcg);
        self.finish_removal(handle);
        Some(freed)
    }
}
