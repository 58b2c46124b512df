//! Where a walk goes on after its callback gave the lock back.
//!
//! The kernel's walk begins again at the oldest, and so shows what it skipped again after each retry: O(n) for each. Remembering
//! the next item would not do either, since it may be gone. So the walk leaves a mark of its own between the items, right
//! before the one it showed: links like an item's, on the walk's stack. Whatever happens to the items around it, it stays between
//! those that were shown and those that were not, and when the group dies it goes to the parent's list with them.
//!
//! # Invariants
//!
//! 1. `on` is null, and the mark is on no list; or it is a list that counts a reference for the mark, and the mark is on the
//!    effective list of that.
//! 2. The mark is taken off before the walk's frame ends, also when the callback panics: its drop does.

use super::list_lru_one::ListLruOne;
use super::locked::LockedList;
use super::raw::RawListLru;
use crate::list::{CursorLink, Hook, LinkLayout, LinkNode, LinkRef};
use crate::rcu::{pin, Guard};
use core::cell::Cell;
use core::marker::PhantomPinned;
use core::ptr::{self, NonNull};

/// See the module.
pub(super) struct Cursor {
    mark: CursorLink,
    shape: &'static LinkLayout,
    /// What the mark is known by.
    node: Cell<Option<LinkNode>>,
    on: Cell<*const ListLruOne>,
    /// The mark's neighbours lead to it while it is dropped: to `Drop`'s `&mut` this says that it is not the only way there.
    _led_to: PhantomPinned,
}

impl Cursor {
    /// For lists of links of this shape.
    pub(super) fn new(shape: &'static LinkLayout) -> Self {
        let (mark, on) = (CursorLink::new(), Cell::new(ptr::null()));
        Self { mark, shape, node: Cell::new(None), on, _led_to: PhantomPinned }
    }

    /// The mark under its name, which it has from the first time on that this is asked. None: there is no memory for a name.
    fn node(&self) -> Option<LinkNode> {
        if self.node.get().is_none() {
            self.node.set(self.mark.name(self.shape));
        }
        self.node.get()
    }

    /// Leaves the mark before `item`; without memory for its name, nothing, and the walk ends.
    ///
    /// # Safety
    ///
    /// `item` is on `list`, and the cursor neither moves nor ends without its drop until it is taken back.
    pub(super) unsafe fn leave_before(&self, item: NonNull<Hook>, list: &mut LockedList<'_>) {
        debug_assert!(self.on.get().is_null(), "a walk has one mark");
        let Some(mark) = self.node() else { return };
        // SAFETY: the mark is on no list (invariant 1) and stays where it is, says the caller; the list's lock is held.
        list.with_list(|l, shape| unsafe { l.insert_before(shape, mark, item) });
        // INVARIANT 1: the list counts the mark.
        list.get();
        self.on.set(list.one());
    }

    /// Takes the mark back. The list it was left on, locked, and what comes after the mark; `None` if there was no mark, or if the
    /// group has died since: the rest is reached by its parent (R7).
    pub(super) fn take_back<'a>(&self, guard: &'a Guard) -> Option<(LockedList<'a>, LinkRef)> {
        let on = self.on.replace(ptr::null());
        if on.is_null() {
            return None;
        }
        let mark = self.node.get()?.at;
        // SAFETY: it counts our reference (invariant 1), so it is not retired; and it will not be while we are in the read side.
        let one = unsafe { &*on };
        let mut list = RawListLru::lock_effective_of(one, guard);
        // SAFETY: the mark is on this list (invariant 1), whose lock we hold.
        let next = unsafe { self.shape.next(mark) };
        // SAFETY: as above.
        let _mark = list.with_list(|l, shape| unsafe { l.remove(shape, mark) });
        // SAFETY: the mark's reference is given up, and this is the effective list.
        unsafe { list.put(one) };
        ptr::eq(list.one(), one).then_some((list, next))
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        // INVARIANT 2.
        if !self.on.get().is_null() {
            drop(self.take_back(&pin()));
        }
        if let Some(mark) = self.node.get() {
            // SAFETY: it was lent by this shape, and the mark is on no list any more.
            unsafe { self.shape.unregister_external(mark.by) };
        }
    }
}
