//! Items taken off their list, on a list of one owner: what a walk collects, to be freed when no lock is held.

use crate::list::{Handle, Linked, Links, RawList};
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

/// A private list of isolated items. Owns them: what is left on it when it is dropped, is dropped.
///
/// An item on it counts as linked: nobody can add it to a list, and nobody can take it off this one but its owner.
#[doc(alias = "list_lru_isolate_move")]
#[doc(alias = "dispose")]
pub struct Isolated<T: Linked> {
    list: RawList,
    len: usize,
    items: PhantomData<T::Handle>,
}

// SAFETY: the list owns its items by handles, which may be sent; their links are touched by the list's owner only.
unsafe impl<T: Linked> Send for Isolated<T> where T::Handle: Send {}

impl<T: Linked> Isolated<T> {
    /// An empty list. Allocates nothing, ever.
    pub const fn new() -> Self {
        Self { list: RawList::new(), len: 0, items: PhantomData }
    }

    /// How many items are on it.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Is there none?
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// # Safety
    ///
    /// `links` are those of a `T`, given as the pointer its handle was turned into, on no list and marked private. The handle
    /// goes over to this list.
    pub(super) unsafe fn push(&mut self, links: NonNull<Links>) {
        // SAFETY: the links are on no list and, being private, ours alone.
        unsafe { self.list.push_back(links.as_ptr()) };
        self.len += 1;
    }

    /// Takes the item off that was isolated first.
    pub fn pop(&mut self) -> Option<T::Handle> {
        // SAFETY: we own the list, and nobody else touches private links.
        let links = NonNull::new(unsafe { self.list.pop_front() }?)?;
        self.len -= 1;
        // SAFETY: the list owns its items, so it is live.
        unsafe { links.as_ref() }.set_home(ptr::null_mut());
        // SAFETY: what was pushed are the links of a `T`.
        let object = unsafe { T::from_links(links) };
        // SAFETY: the handle was turned into this pointer, and the list gives it up.
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

impl<T: Linked> ExactSizeIterator for Isolated<T> {}

impl<T: Linked> Drop for Isolated<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T: Linked> fmt::Debug for Isolated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isolated").field("len", &self.len).finish_non_exhaustive()
    }
}
