//! Those who keep something per group, and must hand it on when a group dies.

use alloc::vec::Vec;

use crate::fallible::{try_arc, try_push};
use crate::memcg::Memcg;
use crate::sync::{Arc, Mutex};

/// Somebody above this crate who must know when a group goes offline: the shrinkers' map and debts, for one.
pub trait OfflineHook: Send + Sync {
    /// Called by [`Memcg::offline`] when `dying` is dying already and its lists have joined those of `parent`.
    ///
    /// `parent` is online, and stays so until the last hook has returned. No lock of the tree is held: the hook may ask the
    /// tree anything and may charge and make groups. It runs on the thread that called `offline`.
    fn offline(&self, dying: &Memcg, parent: &Memcg);
}

/// What [`MemcgTree::remove_hook`](crate::MemcgTree::remove_hook) needs to find a hook again. Never reused within a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId(u64);

type Entry = (HookId, Arc<dyn OfflineHook>);

/// The hooks of a tree, called in the order in which they were added.
///
/// The list is copied on change, so that `offline` takes its own copy with one reference and calls it without a lock.
pub(crate) struct Hooks(Mutex<State>);

struct State {
    /// None: empty.
    list: Option<Arc<Vec<Entry>>>,
    next: u64,
}

impl Hooks {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { list: None, next: 0 }))
    }

    /// None without memory.
    pub(crate) fn try_add(&self, hook: Arc<dyn OfflineHook>) -> Option<HookId> {
        let mut state = self.0.lock();
        let id = HookId(state.next);
        let mut list = Vec::new();
        list.try_reserve_exact(state.len() + 1).ok()?;
        list.extend(state.iter().cloned());
        try_push(&mut list, (id, hook)).ok()?;
        let list = try_arc(list)?;
        state.next += 1;
        let old = state.list.replace(list);
        // The old list may hold the last reference to a hook, whose drop is its owner's code: not under our lock.
        drop(state);
        drop(old);
        Some(id)
    }

    pub(crate) fn remove(&self, id: HookId) {
        self.retain(|(other, _)| *other != id);
    }

    /// Forgets every hook.
    pub(crate) fn clear(&self) {
        let old = self.0.lock().list.take();
        drop(old);
    }

    fn retain(&self, keep: impl Fn(&Entry) -> bool) {
        let mut state = self.0.lock();
        let list: Vec<Entry> = state.iter().filter(|entry| keep(entry)).cloned().collect();
        let list = (!list.is_empty()).then(|| Arc::new(list));
        let old = core::mem::replace(&mut state.list, list);
        drop(state);
        drop(old);
    }

    /// Calls every hook that is there now, without a lock.
    pub(crate) fn call(&self, dying: &Memcg, parent: &Memcg) {
        let list = self.0.lock().list.clone();
        for (_, hook) in list.iter().flat_map(|list| list.iter()) {
            hook.offline(dying, parent);
        }
    }

    /// Bytes allocated for the list, without the hooks themselves.
    pub(crate) fn allocated(&self) -> usize {
        let size = |list: &Arc<Vec<Entry>>| {
            crate::memcg::tree::arc_size::<Vec<Entry>>() + list.capacity() * size_of::<Entry>()
        };
        self.0.lock().list.as_ref().map_or(0, size)
    }
}

impl State {
    fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.list.iter().flat_map(|list| list.iter())
    }

    fn len(&self) -> usize {
        self.list.as_ref().map_or(0, |list| list.len())
    }
}
