//! Those who keep something per group, and must hand it on when a group dies.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::fallible::{try_push, TryArc};
use crate::memcg::Memcg;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};
use crate::unwind::to_the_end;

/// Somebody above this crate who must know when a group goes offline: the shrinkers' map and debts, for one.
pub trait OfflineHook: Send + Sync {
    /// Called by [`Memcg::offline`] when `dying` is dying already and its lists have joined those of `parent`.
    ///
    /// `parent` is online, and stays so until the last hook has returned. No lock of the tree is held: the hook may ask the
    /// tree anything and may charge and make groups. It runs on the thread that called `offline`.
    ///
    /// A hook that panics keeps no other hook from being called: the first panic goes on to the
    /// caller of `offline` after the last.
    fn offline(&self, dying: &Memcg, parent: &Memcg);
}

/// What [`MemcgTree::remove_hook`](crate::MemcgTree::remove_hook) needs to find a hook again. Never reused within a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId {
    number: u64,
    /// Where the tree is: an id of another one removes nothing.
    tree: usize,
}

/// A hook, and where it is counted.
#[derive(Clone)]
enum Handle {
    /// By its owner, who may have more.
    Theirs(Arc<dyn OfflineHook>),
    /// Here.
    Ours(TryArc<Box<dyn OfflineHook>>),
}

struct Entry {
    id: HookId,
    hook: Handle,
    /// It is to be in no list, but there was no memory for one without it.
    removed: AtomicBool,
}

impl Entry {
    fn new(id: HookId, hook: Handle) -> Self {
        Self { id, hook, removed: AtomicBool::new(false) }
    }

    fn hook(&self) -> &dyn OfflineHook {
        match &self.hook {
            Handle::Theirs(hook) => &**hook,
            Handle::Ours(hook) => &***hook,
        }
    }

    fn is_removed(&self) -> bool {
        // Relaxed: set and asked under the lock, but for calls that are under way, which may come
        // or not.
        self.removed.load(Ordering::Relaxed)
    }
}

/// The hooks of a tree, called in the order in which they were added.
///
/// The list is copied on change, so that `offline` takes its own copy with one reference and calls it without a lock.
pub(crate) struct Hooks(Mutex<State>);

struct State {
    /// None: empty.
    list: Option<TryArc<Vec<Entry>>>,
    next: u64,
}

impl Hooks {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { list: None, next: 0 }))
    }

    /// None without memory.
    pub(crate) fn try_add(&self, hook: Arc<dyn OfflineHook>) -> Option<HookId> {
        self.try_add_handle(Handle::Theirs(hook))
    }

    /// None without memory.
    pub(crate) fn try_add_boxed(&self, hook: Box<dyn OfflineHook>) -> Option<HookId> {
        self.try_add_handle(Handle::Ours(TryArc::try_new(hook)?))
    }

    fn try_add_handle(&self, hook: Handle) -> Option<HookId> {
        let mut state = self.0.lock();
        let id = HookId { number: state.next, tree: core::ptr::from_ref(self).addr() };
        let list = state.try_copy(Some(Entry::new(id, hook.clone())));
        let old = list.map(|list| {
            state.next += 1;
            state.list.replace(list)
        });
        // The old list, or `hook` where there is no memory, may be the last reference to a hook,
        // whose drop is its owner's code: not under our lock.
        drop(state);
        old.map(|_| id)
    }

    pub(crate) fn remove(&self, id: HookId) {
        let mut state = self.0.lock();
        let Some(entry) = state.iter().find(|entry| entry.id == id) else { return };
        // Relaxed: see `is_removed`.
        entry.removed.store(true, Ordering::Relaxed);
        let is_last = state.iter().all(Entry::is_removed);
        let old = match is_last {
            true => state.list.take(),
            // Without memory for a shorter list it stays as it is.
            false => state.try_copy(None).and_then(|list| state.list.replace(list)),
        };
        drop(state);
        drop(old);
    }

    /// Forgets every hook.
    pub(crate) fn clear(&self) {
        let old = self.0.lock().list.take();
        drop(old);
    }

    /// Calls every hook that is there now, without a lock, also behind one that panics.
    pub(crate) fn call(&self, dying: &Memcg, parent: &Memcg) {
        let list = self.0.lock().list.clone();
        let mut hooks = list.iter().flat_map(|list| list.iter()).filter(|entry| !entry.is_removed());
        to_the_end(|| hooks.next().map(|entry| entry.hook().offline(dying, parent)).is_some());
    }

    /// Bytes allocated for the list, without the hooks themselves.
    pub(crate) fn allocated(&self) -> usize {
        let ours = |entry: &Entry| matches!(entry.hook, Handle::Ours(_));
        let size = |list: &TryArc<Vec<Entry>>| {
            let boxes = list.iter().filter(|entry| ours(entry)).count() * TryArc::<Box<dyn OfflineHook>>::BYTES;
            TryArc::<Vec<Entry>>::BYTES + list.capacity() * size_of::<Entry>() + boxes
        };
        self.0.lock().list.as_ref().map_or(0, size)
    }
}

impl State {
    fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.list.iter().flat_map(|list| list.iter())
    }

    /// A copy of the list without those that are removed, and one more; none without memory. No
    /// hook is dropped: who is in the copy is in this list, or has a handle of the caller's.
    fn try_copy(&self, more: Option<Entry>) -> Option<TryArc<Vec<Entry>>> {
        let stays = || self.iter().filter(|entry| !entry.is_removed());
        let mut list = Vec::new();
        list.try_reserve_exact(stays().count() + usize::from(more.is_some())).ok()?;
        let copies = stays().map(|entry| Entry::new(entry.id, entry.hook.clone()));
        // There is room.
        copies.chain(more).try_for_each(|entry| try_push(&mut list, entry)).ok()?;
        TryArc::try_new(list)
    }
}
