//! Scopes in which a thread does not reclaim.
//!
//! A thread that holds a cache's locks, or is reclaiming already, must not enter callbacks that
//! take those locks. [`Reclaim`](crate::Reclaim) flags declare this for a single call; a scope
//! declares it for everything that is called inside, as `memalloc_nofs_save` does in the kernel.
//!
//! A change must ensure that a thread counts as inside until the last of its scopes has ended, in
//! whatever order they end, and that `enter_first` does not abort without memory.

use alloc::{boxed::Box, vec::Vec};
use core::hash::BuildHasher;
use core::marker::PhantomData;

use lowwater_base::fallible;
use lowwater_base::sync::Mutex;

use crate::hash::IdHasher;
use lowwater_base::thread_slot::ThreadId;

/// The number of shards: threads that enter scopes all the time rarely contend.
const SHARDS: usize = if cfg!(lowwater_loom) { 2 } else { 16 };

/// The threads inside scopes, each as many times as it is inside.
pub(crate) struct Scopes(Box<[Mutex<Vec<ThreadId>>]>);

impl Scopes {
    /// Returns the heap bytes, without the entries of the threads inside.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

impl Scopes {
    /// Creates an empty set; `None` without memory.
    pub(crate) fn try_new() -> Option<Self> {
        Some(Self(fallible::try_slice(SHARDS, |_| Mutex::new(Vec::new()))?))
    }

    /// Enters a scope. Aborts without memory.
    pub(crate) fn enter(&self) -> NoReclaim<'_> {
        let caller = ThreadId::current();
        self.shard(caller).lock().push(caller);
        NoReclaim { scopes: self, caller, not_send: PhantomData }
    }

    /// Enters a scope; `None` if the thread is in one already (if threads can be told apart), or
    /// without memory.
    pub(crate) fn enter_first(&self) -> Option<NoReclaim<'_>> {
        let caller = ThreadId::current();
        let mut inside = self.shard(caller).lock();
        if ThreadId::KNOWN && inside.contains(&caller) || fallible::try_push(&mut inside, caller).is_err() {
            return None;
        }
        Some(NoReclaim { scopes: self, caller, not_send: PhantomData })
    }

    fn shard(&self, caller: ThreadId) -> &Mutex<Vec<ThreadId>> {
        &self.0[shard_of(caller) % SHARDS]
    }
}

/// While this exists, the thread that created it does not reclaim: calls of the registry that would
/// run callbacks return at once without doing anything. Scopes nest, and end in any order; a leaked
/// scope lasts as long as its thread. From
/// [`Registry::no_reclaim_scope`](crate::Registry::no_reclaim_scope).
///
/// Without `std` there is no thread identity and the scope does nothing; an embedder passes
/// [`Reclaim`](crate::Reclaim) flags.
#[must_use = "the scope ends when this is dropped"]
#[doc(alias = "memalloc_nofs_save")]
pub struct NoReclaim<'a> {
    scopes: &'a Scopes,
    caller: ThreadId,
    /// The scope belongs to the thread that entered it.
    not_send: PhantomData<*const ()>,
}

impl Drop for NoReclaim<'_> {
    fn drop(&mut self) {
        let mut inside = self.scopes.shard(self.caller).lock();
        // A thread that leaves a scope has entered it, so it is in the list.
        if let Some(at) = inside.iter().position(|other| *other == self.caller) {
            inside.swap_remove(at);
        }
    }
}

impl core::fmt::Debug for NoReclaim<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("NoReclaim").field(&self.caller).finish()
    }
}

fn shard_of(thread: ThreadId) -> usize {
    (IdHasher::default().hash_one(thread) >> 32) as usize
}
