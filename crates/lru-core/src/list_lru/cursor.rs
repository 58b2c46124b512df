//! The position at which a walk resumes after its callback released the lock.
//!
//! The kernel's walk restarts at the oldest item and so visits the skipped items again: O(n) for
//! each retry. A pointer to the next item would not be safe, since another thread may remove and
//! free that item. So the walk inserts a cursor into the list: links like an item's, on the walk's
//! stack, right before the item with which the callback was called. If that item stays on the list,
//! it is visited again. The cursor keeps its position between the earlier and the later items, also
//! if its neighbours are removed. When the group dies, the cursor is spliced into the parent's list
//! together with the items.
//!
//! # Invariants
//!
//! 1. Either `on` is null and the cursor is on no list, or `on` is a list that counts a reference
//!    for the cursor, and the cursor is on that list's effective list.
//! 2. The cursor is taken off before the walk's frame ends, also when the callback panics: `Drop`
//!    takes it off.
//!
//! A change must keep these invariants, and must not move the cursor while it is on a list.
//!
//! Numbers such as R7 are those of docs/INVARIANTS.md.

use super::list_lru_one::ListLruOne;
use super::locked::LockedList;
use super::raw::RawListLru;
use crate::list::{CursorLink, Hook, LinkLayout, LinkNode, LinkRef};
use crate::rcu::{pin, Guard};
use core::cell::Cell;
use core::marker::PhantomPinned;
use core::ptr::{self, NonNull};

/// A cursor that a walk can insert into a list; see the module.
pub(super) struct Cursor {
    link: CursorLink,
    /// The layout of the links of the list's items.
    layout: &'static LinkLayout,
    /// The address of the cursor's links, and the reference by which neighbours refer to them;
    /// `None` before the first insertion.
    node: Cell<Option<LinkNode>>,
    /// The list that counts the cursor's reference; null for none (invariant 1).
    on: Cell<*const ListLruOne>,
    /// The cursor's neighbours point to it while it is dropped: `PhantomPinned` keeps the `&mut` in
    /// `Drop` from asserting that it is the only pointer.
    _led_to: PhantomPinned,
}

impl Cursor {
    /// Creates a cursor for lists whose links have this layout.
    pub(super) fn new(layout: &'static LinkLayout) -> Self {
        let (link, on) = (CursorLink::new(), Cell::new(ptr::null()));
        Self { link, layout, node: Cell::new(None), on, _led_to: PhantomPinned }
    }

    /// Returns the cursor as a link node, and registers it with the layout on the first call.
    /// `None`: there is no memory for the registration.
    fn node(&self) -> Option<LinkNode> {
        if self.node.get().is_none() {
            self.node.set(self.link.register(self.layout));
        }
        self.node.get()
    }

    /// Inserts the cursor before `item`. If there is no memory to register the cursor, does
    /// nothing, and the walk ends.
    ///
    /// # Safety
    ///
    /// `item` is on `list`, and until the cursor is taken back it neither moves nor is freed
    /// without running its `Drop`.
    pub(super) unsafe fn leave_before(&self, item: NonNull<Hook>, list: &mut LockedList<'_>) {
        debug_assert!(self.on.get().is_null(), "the cursor of a walk is on one list at most");
        let Some(link) = self.node() else { return };
        // SAFETY: the cursor is on no list (invariant 1) and does not move (this function's
        // clause); `item` is on this list, and the list's lock is held.
        list.with_list(|l, layout| unsafe { l.insert_before(layout, link, item) });
        // INVARIANT 1: the list counts a reference for the cursor.
        list.get();
        self.on.set(list.one());
    }

    /// Takes the cursor off its list, and returns the list, locked, and the link after the cursor.
    /// `None` if the cursor was on no list, or if its list has died since: the remaining items are
    /// the parent's then, and the walk ends (R7).
    pub(super) fn take_back<'a>(&self, guard: &'a Guard) -> Option<(LockedList<'a>, LinkRef)> {
        let on = self.on.replace(ptr::null());
        if on.is_null() {
            return None;
        }
        let link = self.node.get()?.at;
        // SAFETY: the list counts a reference for the cursor (invariant 1), so it is not retired
        // yet; and `guard` keeps it from being freed after the reference is given up below.
        let one = unsafe { &*on };
        let mut list = RawListLru::lock_effective_of(one, guard);
        // SAFETY: the cursor is on this list (invariant 1), and we hold the list's lock.
        let next = unsafe { self.layout.next(link) };
        // SAFETY: the cursor is on this list (invariant 1), and we hold the list's lock.
        let _link = list.with_list(|l, layout| unsafe { l.remove(layout, link) });
        // SAFETY: `one` counts the cursor's reference, which is given up here, and `list` is its
        // effective list.
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
        if let Some(link) = self.node.get() {
            // SAFETY: `node` registered this reference with the same layout, and the cursor is on
            // no list any more.
            unsafe { self.layout.unregister_external(link.by) };
        }
    }
}
