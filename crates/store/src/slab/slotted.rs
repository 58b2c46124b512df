//! Objects that can live in a slab, and their handles.

use super::state::SlotState;
use core::ops::Deref;
use core::ptr::NonNull;
use lowwater_lru_core::Linked;

/// An object that can live in a [`Slab`](super::Slab). Do not implement it by hand: [`slotted!`](crate::slotted) does.
///
/// # Safety
///
/// `state` is always the same [`SlotState`], a part of the object, and of no other.
pub unsafe trait Slotted: Linked<Handle = Slot<Self>> + Send + Sync + 'static {
    /// The object's byte of state.
    fn state(&self) -> &SlotState;

    /// About how many bytes of memory end with the object. Asked once, when its handle is dropped, without a lock. With `std` a panic
    /// counts as in [`Slab::drop_panics`](super::Slab::drop_panics), and the object as the size of its type; without, the panic goes on to whoever drops the handle,
    /// and the object is leaked.
    fn weight(&self) -> u64;
}

/// An object in a [`Slab`](super::Slab), and the right to say when it ends.
///
/// There is one for each object. When it is dropped, the object is dropped and its slot used again as soon as every reader that may have
/// found it has left. Unless the object is in an [`ExtendibleIndex`](crate::ExtendibleIndex): then it stays there, lost to everybody else, until it is taken
/// out, or the index ends.
///
/// It can be dropped when its slab is gone, on any thread, and as late as a thread's end. One that is leaked keeps the object, its chunk of
/// memory, and what the slab's objects share.
///
/// It is a [`Handle`](lowwater_lru_core::Handle): a list can own it.
pub struct Slot<T: Slotted>(pub(crate) NonNull<T>);

// SAFETY: it owns an object that is Send and Sync (bounds of `Slotted`); the slab it goes back to is behind locks.
unsafe impl<T: Slotted> Send for Slot<T> {}
// SAFETY: as for Send.
unsafe impl<T: Slotted> Sync for Slot<T> {}

impl<T: Slotted> Deref for Slot<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object lives while it has its handle.
        unsafe { self.0.as_ref() }
    }
}

/// Implements [`Linked`](lowwater_lru_core::Linked), with [`Slot`] for a handle, and [`Slotted`] for a type with a field of type
/// [`CompressedLinks`](crate::CompressedLinks) and one of type [`SlotState`].
///
/// ```
/// #![forbid(unsafe_code)]
/// use lowwater_store::{slab::SlotState, slotted, CompressedLinks};
///
/// struct Entry<K: Send + Sync + 'static> {
///     links: CompressedLinks,
///     state: SlotState,
///     key: K,
/// }
/// slotted!(impl[K: Send + Sync + 'static] for Entry<K> { links, state, weight: |entry| size_of_val(entry) as u64 });
/// ```
///
/// Both are a part of the object itself, and not of one that it leads to:
///
/// ```compile_fail,E0308
/// # use lowwater_store::{slab::SlotState, slotted, CompressedLinks};
/// struct Boxed {
///     links: CompressedLinks,
///     state: Box<SlotState>,
/// }
/// slotted!(impl[] for Boxed { links, state, weight: |_| 1 }); // error: expected `*const SlotState`
/// ```
///
/// ```compile_fail,E0308
/// # use lowwater_store::{slab::SlotState, slotted, CompressedLinks};
/// # use std::sync::Arc;
/// struct SharedSlab {
///     links: CompressedLinks,
///     state: Arc<SlotState>,
/// }
/// slotted!(impl[] for SharedSlab { links, state, weight: |_| 1 }); // error: expected `*const SlotState`
/// ```
///
/// ```compile_fail,E0308
/// # use lowwater_store::{slab::SlotState, slotted, CompressedLinks};
/// # use std::sync::Arc;
/// struct SharedSlab {
///     links: Arc<CompressedLinks>,
///     state: SlotState,
/// }
/// slotted!(impl[] for SharedSlab { links, state, weight: |_| 1 }); // error: expected `*const CompressedLinks`
/// ```
#[macro_export]
macro_rules! slotted {
    (impl[$($generics:tt)*] for $type:ty { $links:tt, $state:tt, weight: $weight:expr $(,)? }) => {
        $crate::__lru_core::linked!(@impl[$($generics)*] for $type { $links: CompressedLinks, handle: $crate::slab::Slot<Self> });

        // SAFETY: the only handle is a slot of a slab.
        unsafe impl<$($generics)*> $crate::__lru_core::list::InSlots for $type {}

        // SAFETY: it is a field of the object itself, or `__own_field` does not compile.
        unsafe impl<$($generics)*> $crate::slab::Slotted for $type {
            #[inline]
            fn state(&self) -> &$crate::slab::SlotState {
                $crate::__base::__own_field!($state: $crate::slab::SlotState);
                &self.$state
            }

            #[inline]
            fn weight(&self) -> u64 {
                let weight: fn(&Self) -> u64 = $weight;
                weight(self)
            }
        }
    };
}
