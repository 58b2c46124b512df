//! Items taken off their list, on a list of one owner: what a walk collects, to be freed when no lock is held.

use super::AddError;
use crate::list::{handle_of, Handle, Hook, LinkNode, Linked, RawQueue};
use crate::unwind::to_the_end;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;

/// A private list of isolated items. Owns them: what is left on it when it is dropped, is dropped.
///
/// An item on it counts as linked: nobody can add it to a list, and nobody can take it off this one but its owner.
#[doc(alias = "list_lru_isolate_move")]
#[doc(alias = "dispose")]
pub struct Isolated<T: Linked> {
    queue: RawQueue,
    len: usize,
    items: PhantomData<T::Handle>,
}

// SAFETY: the list owns its items by handles, which may be sent; their links are touched by the list's owner only.
unsafe impl<T: Linked> Send for Isolated<T> where T::Handle: Send {}

impl<T: Linked> Isolated<T> {
    /// An empty list. Allocates nothing, ever.
    pub const fn new() -> Self {
        Self { queue: RawQueue::new(), len: 0, items: PhantomData }
    }

    /// How many items are on it.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Is there none?
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item behind those that are here, to hand them all over at once with [`ListLru::add_batch`](crate::ListLru::add_batch).
    ///
    /// # Errors
    ///
    /// [`AddError::Linked`] and the item, when it is on a list already, or on another of these.
    pub fn push(&mut self, item: T::Handle) -> Result<(), AddError<T::Handle>> {
        let object = item.into_raw();
        // SAFETY: a handle gives a pointer to an object.
        let links = unsafe { T::links(object) };
        // SAFETY: the caller owned the object by its handle, which we hold as a pointer.
        if !unsafe { links.as_ref() }.claim(Hook::PRIVATE, T::Handle::UNIQUE) {
            // SAFETY: it was turned into this pointer above, and nobody took it.
            return Err(AddError::Linked(unsafe { T::Handle::from_raw(object) }));
        }
        // SAFETY: they are a `T`'s, given as its handle was turned into.
        let node = unsafe { T::LAYOUT.node(links) };
        // SAFETY: it was just claimed.
        unsafe { self.push_links(node) };
        Ok(())
    }

    /// The links of the item that is taken off next.
    pub(super) fn first(&self) -> Option<LinkNode> {
        // SAFETY: what is on the queue is live: we own it.
        unsafe { self.queue.first(T::LAYOUT) }
    }

    /// Takes the links of the first item off, which stay private; the handle goes over to the caller.
    pub(super) fn pop_links(&mut self) -> Option<LinkNode> {
        // SAFETY: we own the list, and nobody else touches private links.
        let links = unsafe { self.queue.pop_front(T::LAYOUT) }?;
        self.len -= 1;
        Some(links)
    }

    /// # Safety
    ///
    /// `links` are those of a `T`, given as the pointer its handle was turned into, on no list and marked private. The handle
    /// goes over to this list.
    pub(super) unsafe fn push_links(&mut self, links: LinkNode) {
        // SAFETY: the links are on no list and, being private, ours alone.
        unsafe { self.queue.push_back(T::LAYOUT, links) };
        self.len += 1;
    }

    /// Takes the item off that was isolated first.
    pub fn pop(&mut self) -> Option<T::Handle> {
        let links = self.pop_links()?;
        // SAFETY: the list owned its items, so it is live.
        unsafe { links.at.as_ref() }.set_home(ptr::null_mut());
        // SAFETY: what was pushed are the links of a `T`, and the list gives it up.
        Some(unsafe { handle_of::<T>(links.by) })
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
    fn drop(&mut self) {
        // An item's drop may panic, which shall not keep the others.
        to_the_end(|| self.pop().is_some());
    }
}

impl<T: Linked> fmt::Debug for Isolated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isolated").field("len", &self.len).finish_non_exhaustive()
    }
}
