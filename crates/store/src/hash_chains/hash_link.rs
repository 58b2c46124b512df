//! The link of an object on a chain, and the trait of objects that have one.
//!
//! One word per object. The tag bit makes an insert exclusive: of several tables, the one that sets
//! it links the object (invariant 1 of `hash_chains.rs`). `hash_node!` is the only safe way to
//! implement the trait.
//!
//! A supertype of `T` may have its own implementation of the trait, which names another link. A
//! type that safe code outside of this crate can hold, that owns or leads to a `T` and calls
//! functions of the trait, must be invariant in `T`.
//!
//! A change must ensure that an object is linked by the table that set its tag, and by no other.

use crate::sync::atomic::{AtomicPtr, Ordering};
#[cfg(lowwater_loom)]
use crate::sync::UnsafeCell;
use core::fmt;
use core::ptr;

/// The tag bit in an object's `next`, set while the object is on a chain (invariant 1). Bit 0 is
/// free: the object contains an `AtomicPtr`, so its address is even.
const LINKED: usize = 1;

/// A field of each object that can be on a chain. One word.
pub struct HashLink<T> {
    /// The next object of the chain, with the tag `LINKED`. A removed object keeps it, without the
    /// tag, for readers that stand on the object.
    pub(super) next: AtomicPtr<T>,
    /// Reports reads of the object, and its freeing, to the model checker.
    #[cfg(lowwater_loom)]
    pub(super) seen: UnsafeCell<()>,
}

// SAFETY: `seen` holds no data; the model checker uses it to detect concurrent access.
#[cfg(lowwater_loom)]
unsafe impl<T> Send for HashLink<T> {}
// SAFETY: `seen` holds no data; the model checker uses it to detect concurrent access.
#[cfg(lowwater_loom)]
unsafe impl<T> Sync for HashLink<T> {}

/// An object with a [`HashLink`] inside. Do not implement it by hand; use
/// [`hash_node!`](crate::hash_node).
///
/// # Safety
///
/// [`link`](Self::link) always returns the same link. The link is a field of the object itself, and
/// no other object returns it.
#[doc(alias = "hlist_bl_node")]
pub unsafe trait HashNode: Sized + Send + Sync + 'static {
    /// Returns the link.
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
/// The link must be a field of the object itself, not behind a pointer:
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

        // SAFETY: the link is a field of the object itself: `__own_field` compiles for nothing
        // else.
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
    /// Creates a link that is on no chain.
    #[inline]
    pub fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            #[cfg(lowwater_loom)]
            seen: UnsafeCell::new(()),
        }
    }

    /// Returns true if the object is on a chain. The answer may be outdated when it is returned.
    #[inline]
    pub fn is_linked(&self) -> bool {
        // Relaxed: the answer may be outdated anyway, so it orders nothing.
        self.next.load(Ordering::Relaxed).addr() & LINKED != 0
    }

    /// Claims the object for a chain with `head` as its first object; returns false if it is on a
    /// chain already (invariant 1).
    pub(super) fn claim(&self, head: *mut T) -> bool {
        // Relaxed: the value is only tested, and expected by the exchange.
        let old = self.next.load(Ordering::Relaxed);
        // AcqRel: Acquire pairs with the Release in `take_off` of the thread that last removed the
        // object. Release: a reader that still stands on the object, from its earlier chain, reads
        // this `next` and goes on to `head`, which it must see as inserted. Relaxed on failure:
        // nothing was claimed.
        old.addr() & LINKED == 0
            && self.next.compare_exchange(old, tagged(head), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Unlinks the object. `before` points to the object: it is the bucket's head (stored without
    /// the tag), or the `next` of the object before (stored with the tag). The bucket's lock is
    /// held.
    pub(super) fn leave(&self, before: &AtomicPtr<T>, before_is_head: bool) {
        // Relaxed: the lock is held (invariant 2).
        let next = untagged(self.next.load(Ordering::Relaxed));
        // Release: pairs with the Acquire in `follow`; this thread sees the following object as
        // inserted, because the insert held the same lock.
        before.store(if before_is_head { next } else { tagged(next) }, Ordering::Release);
        self.take_off();
    }

    /// Marks the object as being on no chain and returns the next object.
    ///
    /// No head or `next` of a linked object leads to the object any more, or the table is being
    /// dropped. The `next` of removed objects may still lead to it, for readers that stand on them.
    /// The bucket's lock is held, or the caller has exclusive access to the table.
    pub(super) fn take_off(&self) -> *mut T {
        // Relaxed: no other thread changes it (invariant 2).
        let next = untagged(self.next.load(Ordering::Relaxed));
        // Release: pairs with the Acquire in `claim`, and in `follow` for readers that stand on
        // this object.
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
