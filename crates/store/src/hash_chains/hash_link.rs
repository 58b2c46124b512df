//! The link of an object on a chain, and the objects that have one.

use crate::sync::atomic::{AtomicPtr, Ordering};
#[cfg(lowwater_loom)]
use crate::sync::UnsafeCell;
use core::fmt;
use core::ptr;

/// Set in an object's `next` while it is on a chain (invariant 1).
const LINKED: usize = 1;

/// What an object carries to be on a chain. 8 bytes.
pub struct HashLink<T> {
    pub(super) next: AtomicPtr<T>,
    /// Tells a model checker of reads, and of the freeing.
    #[cfg(lowwater_loom)]
    pub(super) seen: UnsafeCell<()>,
}

// SAFETY: `seen` holds nothing; it is there for the model checker, which says itself when two threads are at it.
#[cfg(lowwater_loom)]
unsafe impl<T> Send for HashLink<T> {}
// SAFETY: as for Send.
#[cfg(lowwater_loom)]
unsafe impl<T> Sync for HashLink<T> {}

/// An object with a [`HashLink`] inside. Do not implement it by hand: [`hash_node!`](crate::hash_node)
/// does.
///
/// # Safety
///
/// [`link`](Self::link) returns always the same link, which is a part of the object, and of no
/// other.
#[doc(alias = "hlist_bl_node")]
pub unsafe trait HashNode: Sized + Send + Sync + 'static {
    /// The link.
    fn link(&self) -> &HashLink<Self>;
}

/// Implements [`HashNode`] for a type that has a field of type [`HashLink`].
///
/// ```
/// #![forbid(unsafe_code)]
/// use lowwater_store::hash_chains::{HashChains, HashLink, Reader};
/// use std::sync::Arc;
///
/// struct Name {
///     link: HashLink<Name>,
///     name: &'static str,
/// }
/// lowwater_store::hash_node!(impl[] for Name { link });
///
/// let table = HashChains::<Name>::new(16);
/// let entry = Arc::new(Name { link: HashLink::new(), name: "etc" });
/// table.insert(7, entry.clone()).ok().unwrap();
///
/// let reader = Reader::enter();
/// assert_eq!(table.find(7, &reader, |entry| entry.name == "etc").unwrap().name, "etc");
/// assert!(table.remove(7, &entry));
/// ```
///
/// The link is a part of the object itself, and not of one that it leads to:
///
/// ```compile_fail,E0308
/// # use lowwater_store::{hash_node, hash_chains::HashLink};
/// struct Boxed {
///     link: Box<HashLink<Boxed>>,
/// }
/// hash_node!(impl[] for Boxed { link }); // error: expected `*const HashLink<Boxed>`
/// ```
///
/// ```compile_fail,E0308
/// # use lowwater_store::{hash_node, hash_chains::HashLink};
/// # use std::sync::Arc;
/// struct Shared {
///     link: Arc<HashLink<Shared>>,
/// }
/// hash_node!(impl[] for Shared { link }); // error: expected `*const HashLink<Shared>`
/// ```
#[macro_export]
macro_rules! hash_node {
    (impl[$($generics:tt)*] for $type:ty { $field:ident $(,)? }) => {
        $crate::__base::__generic_parameters!($($generics)*);

        // SAFETY: the link is a field of the object itself, or `__own_field` does not compile.
        unsafe impl<$($generics)*> $crate::hash_chains::HashNode for $type {
            #[inline]
            fn link(&self) -> &$crate::hash_chains::HashLink<Self> {
                $crate::__base::__own_field!($field: $crate::hash_chains::HashLink<Self>);
                &self.$field
            }
        }
    };
}

// === impl HashLink ===

impl<T> HashLink<T> {
    /// A link that is on no chain.
    #[inline]
    pub fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            #[cfg(lowwater_loom)]
            seen: UnsafeCell::new(()),
        }
    }

    /// Is the object on a chain? True for no longer than it takes to ask.
    #[inline]
    pub fn is_linked(&self) -> bool {
        // Relaxed: an answer that is old when it arrives orders nothing.
        self.next.load(Ordering::Relaxed).addr() & LINKED != 0
    }

    /// Takes the object for a chain whose first is `head`, if it is on none (invariant 1).
    pub(super) fn claim(&self, head: *mut T) -> bool {
        // Relaxed: only compared.
        let old = self.next.load(Ordering::Relaxed);
        // AcqRel: Acquire meets the Release in `leave` by whoever took it off last. Release: readers that stand on it since then
        // follow this to `head`. Relaxed on failure: nothing was taken.
        old.addr() & LINKED == 0
            && self.next.compare_exchange(old, tagged(head), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes the object off: `before` is the head or the `next` that names it. The bucket's lock is held.
    pub(super) fn leave(&self, before: &AtomicPtr<T>, before_is_head: bool) {
        // Relaxed: the lock is held (invariant 2).
        let next = untagged(self.next.load(Ordering::Relaxed));
        // Release: meets the Acquire in `follow`; what comes behind was published to us under this lock.
        before.store(if before_is_head { next } else { tagged(next) }, Ordering::Release);
        self.take_off();
    }

    /// Says that the object is on no chain, to which nothing leads any more; what is behind it. The bucket's lock is held, or the caller
    /// has the only access to the table.
    pub(super) fn take_off(&self) -> *mut T {
        // Relaxed: nobody else changes it (invariant 2).
        let next = untagged(self.next.load(Ordering::Relaxed));
        // Release: meets the Acquire in `claim`, and in `follow` for readers that stand here.
        self.next.store(next, Ordering::Release);
        next
    }
}

impl<T> Default for HashLink<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for HashLink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashLink").field("linked", &self.is_linked()).finish_non_exhaustive()
    }
}

pub(super) fn tagged<T>(ptr: *mut T) -> *mut T {
    ptr.map_addr(|addr| addr | LINKED)
}

#[inline]
pub(super) fn untagged<T>(ptr: *mut T) -> *mut T {
    ptr.map_addr(|addr| addr & !LINKED)
}
