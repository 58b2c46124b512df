//! Private lists: of items that a walk took off their list, to be freed when no lock is held, or of
//! items to be added in one batch.
//!
//! Destructors run arbitrary code, so a walk must not drop an item under the list's lock: it
//! collects the items here, and the caller drops them afterwards. A change must ensure that an item
//! on an `Isolated` is marked private (`Hook::PRIVATE`), so that no other thread can add or remove
//! it, and that collecting allocates nothing.

use super::AddError;
use crate::list::{Handle, Hook, LinkNode, Linked, RawQueue};
use crate::unwind::to_the_end;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;

/// A private list of isolated items, which it owns: dropping it drops the items still on it.
///
/// An item on an `Isolated` counts as linked: no other thread can add it to a list or remove it.
#[doc(alias = "list_lru_isolate_move")]
#[doc(alias = "dispose")]
pub struct Isolated<T: Linked> {
    queue: RawQueue,
    len: usize,
    items: PhantomData<T::Handle>,
}

// SAFETY: the list owns its items by handles, which are `Send`; only the owner of the list accesses
// the links of its items.
unsafe impl<T: Linked> Send for Isolated<T> where T::Handle: Send {}

impl<T: Linked> Isolated<T> {
    /// Creates an empty list. Never allocates.
    pub const fn new() -> Self {
        Self { queue: RawQueue::new(), len: 0, items: PhantomData }
    }

    /// Returns the number of items.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no items.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends an item, to add many with one call of
    /// [`ListLru::add_batch`](crate::ListLru::add_batch).
    ///
    /// # Errors
    ///
    /// [`AddError::Linked`] with the item, if it is on a list or on an `Isolated` already.
    pub fn push(&mut self, item: T::Handle) -> Result<(), AddError<T::Handle>> {
        let object = item.into_raw();
        // SAFETY: `into_raw` returned a pointer to a live object, which we own.
        let links = unsafe { T::links(object) };
        // SAFETY: the object is live: we own it by the raw handle.
        if !unsafe { links.as_ref() }.claim(Hook::PRIVATE, T::Handle::UNIQUE) {
            // SAFETY: `into_raw` returned this pointer above, and no list took ownership.
            return Err(AddError::Linked(unsafe { T::Handle::from_raw(object) }));
        }
        // SAFETY: the links are those of a `T`, and derive from the pointer that `into_raw`
        // returned.
        let node = unsafe { T::LAYOUT.node(links) };
        // SAFETY: `claim` marked the links private and ensured that they are on no list; this list
        // takes the handle.
        unsafe { self.push_links(node) };
        Ok(())
    }

    /// Returns the links of the item that [`pop_links`](Self::pop_links) takes next.
    pub(super) fn first(&self) -> Option<LinkNode> {
        // SAFETY: this list owns the items on the queue, so they are live.
        unsafe { self.queue.first(T::LAYOUT) }
    }

    /// Takes the first item's links off; they stay marked private. The caller takes over the
    /// handle.
    pub(super) fn pop_links(&mut self) -> Option<LinkNode> {
        // SAFETY: `self` owns the items, so they are live, and no other thread accesses private
        // links.
        let links = unsafe { self.queue.pop_front(T::LAYOUT) }?;
        self.len -= 1;
        Some(links)
    }

    /// Appends an item by its links.
    ///
    /// # Safety
    ///
    /// `links` are those of a `T`, derived from the pointer that `into_raw` returned, on no list
    /// and marked private. This list takes over the handle.
    pub(super) unsafe fn push_links(&mut self, links: LinkNode) {
        // SAFETY: the links are on no list, and since they are marked private no other thread
        // accesses them (this function's clauses).
        unsafe { self.queue.push_back(T::LAYOUT, links) };
        self.len += 1;
    }

    /// Removes and returns the first item, which is on no list from then on.
    pub fn pop(&mut self) -> Option<T::Handle> {
        let links = self.pop_links()?;
        // SAFETY: the list owned the item, and the handle is still ours, so the object is live.
        unsafe { links.at.as_ref() }.set_home(ptr::null_mut());
        // SAFETY: only links of a `T` are pushed (clause of `push_links`).
        let object = unsafe { T::from_links(links.at) };
        // SAFETY: `pop_links` found the links by the reference by which they were pushed, so this
        // is the pointer that `into_raw` made; the list gave it up, so it is taken back once.
        Some(unsafe { T::Handle::from_raw(object) })
    }
}

impl<T: Linked> Default for Isolated<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> Iterator for Isolated<T> {
    type Item = T::Handle;

    fn next(&mut self) -> Option<T::Handle> {
        self.pop()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

/// # Panics
///
/// If an item is on a list already.
impl<T: Linked> FromIterator<T::Handle> for Isolated<T> {
    fn from_iter<I: IntoIterator<Item = T::Handle>>(items: I) -> Self {
        let mut isolated = Self::new();
        for item in items {
            isolated.push(item).expect("an item that is collected must be on no list");
        }
        isolated
    }
}

impl<T: Linked> ExactSizeIterator for Isolated<T> {}

impl<T: Linked> Drop for Isolated<T> {
    #[inline]
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // If the drop of an item panics, the others are dropped as well.
        to_the_end(|| self.pop().is_some());
    }
}

impl<T: Linked> fmt::Debug for Isolated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isolated").field("len", &self.len).finish_non_exhaustive()
    }
}
