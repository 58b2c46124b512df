//! The hooks of a tree, which are called when a group goes offline, and when a limit is lowered
//! below the usage.
//!
//! A hook may call the tree, so hooks run without the lock: a call takes a reference to the list,
//! and each change replaces the list by a copy. Without memory for the copy, an addition fails, and
//! a removal only marks the entry.
//!
//! A change must ensure that no hook is called or dropped under the lock.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;

use crate::fallible::{try_push, TryArc};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};
use crate::unwind::to_the_end;

/// The number of the next tree. Not the tree's address, which another tree may get later: an id of
/// the first one would remove a hook of the other.
static NEXT_TREE: AtomicUsize = AtomicUsize::new(0);

/// The number of a hook, for [`MemcgTree::remove_hook`](crate::MemcgTree::remove_hook). Never
/// reused; an id of another tree removes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId {
    number: u64,
    /// The number of the tree.
    tree: usize,
}

/// A shared hook of the trait object type `H`. The variant determines the owner of the reference
/// count.
enum SharedHook<H: ?Sized> {
    /// Counted by the caller's `Arc`, of which more references may exist.
    Theirs(Arc<H>),
    /// Counted by the hook lists of this tree.
    Ours(TryArc<Box<H>>),
}

/// A hook in a list.
struct HookEntry<H: ?Sized> {
    id: HookId,
    hook: SharedHook<H>,
    /// Whether the hook was removed. Set for calls that still use this list, and for the list that
    /// stays because there is no memory for a shorter one.
    removed: AtomicBool,
}

impl<H: ?Sized> Clone for SharedHook<H> {
    fn clone(&self) -> Self {
        match self {
            SharedHook::Theirs(hook) => SharedHook::Theirs(hook.clone()),
            SharedHook::Ours(hook) => SharedHook::Ours(hook.clone()),
        }
    }
}

impl<H: ?Sized> HookEntry<H> {
    fn new(id: HookId, hook: SharedHook<H>) -> Self {
        Self { id, hook, removed: AtomicBool::new(false) }
    }

    fn hook(&self) -> &H {
        match &self.hook {
            SharedHook::Theirs(hook) => hook,
            SharedHook::Ours(hook) => hook,
        }
    }

    fn is_removed(&self) -> bool {
        // Relaxed: written and read under the lock, but for the reads of `for_each`, which may or
        // may not see a concurrent removal.
        self.removed.load(Ordering::Relaxed)
    }
}

/// The hooks of a tree, called in the order in which they were added; see the module.
pub(super) struct Hooks<H: ?Sized>(Mutex<HookList<H>>);

/// The list of hooks, and the id of the next hook.
struct HookList<H: ?Sized> {
    /// `None` if empty.
    list: Option<TryArc<Vec<HookEntry<H>>>>,
    next: HookId,
}

impl<H: ?Sized> Hooks<H> {
    pub(super) fn new() -> Self {
        // Relaxed: only the uniqueness of the number matters.
        let tree = NEXT_TREE.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        Self(Mutex::new(HookList { list: None, next: HookId { number: 0, tree } }))
    }

    /// Adds a hook. `None` if there is no memory.
    pub(super) fn try_add(&self, hook: Arc<H>) -> Option<HookId> {
        self.try_add_shared(SharedHook::Theirs(hook))
    }

    /// Adds a hook that no other owner shares. `None` if there is no memory.
    pub(super) fn try_add_boxed(&self, hook: Box<H>) -> Option<HookId> {
        self.try_add_shared(SharedHook::Ours(TryArc::try_new(hook)?))
    }

    fn try_add_shared(&self, hook: SharedHook<H>) -> Option<HookId> {
        let mut hooks = self.0.lock();
        let id = hooks.next;
        let list = hooks.try_copy(Some(HookEntry::new(id, hook.clone())));
        let old = list.map(|list| {
            hooks.next.number += 1;
            hooks.list.replace(list)
        });
        // The old list, or `hook` if there was no memory, may be the last reference to a hook,
        // whose drop runs user code: not under the lock.
        drop(hooks);
        old.map(|_| id)
    }

    /// Removes a hook, if it is in this list.
    pub(super) fn remove(&self, id: HookId) {
        let mut hooks = self.0.lock();
        let Some(entry) = hooks.iter().find(|entry| entry.id == id) else { return };
        // Relaxed: see `is_removed`.
        entry.removed.store(true, Ordering::Relaxed);
        let is_last = hooks.iter().all(HookEntry::is_removed);
        let old = match is_last {
            true => hooks.list.take(),
            // If there is no memory for a shorter list, the list stays as it is, with the entry
            // marked removed.
            false => hooks.try_copy(None).and_then(|list| hooks.list.replace(list)),
        };
        drop(hooks);
        drop(old);
    }

    /// Removes every hook.
    pub(super) fn clear(&self) {
        let old = self.0.lock().list.take();
        drop(old);
    }

    /// Calls `call` with every hook that is in the list now, without a lock. If a call panics, the
    /// other hooks are called all the same, and then the panic goes on.
    pub(super) fn for_each(&self, call: impl Fn(&H)) {
        let list = self.0.lock().list.clone();
        let mut hooks = list.iter().flat_map(|list| list.iter()).filter(|entry| !entry.is_removed());
        to_the_end(|| hooks.next().map(|entry| call(entry.hook())).is_some());
    }

    /// Returns the bytes allocated for the list, without the hooks themselves.
    pub(super) fn allocated(&self) -> usize {
        let ours = |entry: &HookEntry<H>| matches!(entry.hook, SharedHook::Ours(_));
        let size = |list: &TryArc<Vec<HookEntry<H>>>| {
            let boxes = list.iter().filter(|entry| ours(entry)).count() * TryArc::<Box<H>>::BYTES;
            TryArc::<Vec<HookEntry<H>>>::BYTES + list.capacity() * size_of::<HookEntry<H>>() + boxes
        };
        self.0.lock().list.as_ref().map_or(0, size)
    }
}

impl<H: ?Sized> HookList<H> {
    fn iter(&self) -> impl Iterator<Item = &HookEntry<H>> {
        self.list.iter().flat_map(|list| list.iter())
    }

    /// Copies the list without the removed entries, and adds `more`; `None` if there is no memory.
    /// No hook is dropped: each hook of the copy is in this list, too, or the caller has a
    /// reference.
    fn try_copy(&self, more: Option<HookEntry<H>>) -> Option<TryArc<Vec<HookEntry<H>>>> {
        let stays = || self.iter().filter(|entry| !entry.is_removed());
        let mut list = Vec::new();
        list.try_reserve_exact(stays().count() + usize::from(more.is_some())).ok()?;
        let copies = stays().map(|entry| HookEntry::new(entry.id, entry.hook.clone()));
        // Cannot fail: the capacity was reserved.
        copies.chain(more).try_for_each(|entry| try_push(&mut list, entry)).ok()?;
        TryArc::try_new(list)
    }
}
