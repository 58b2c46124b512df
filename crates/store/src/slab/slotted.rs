//! The trait of objects that can live in a slab, and their handle.
//!
//! The trait is implemented by the macro [`slotted`](crate::slotted) alone, since the code relies
//! on the field offsets that the macro computes. A change must ensure that a `Slot` is the only
//! handle of its object: exclusive access to the object's links follows from it.
//!
//! A supertype of `T` may have its own implementation of the trait, which names other fields. A
//! type that safe code outside of this crate can hold, that owns or leads to a `T` and calls
//! functions of the trait, must be invariant in `T`.

use super::state::SlotState;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use lowwater_lru_core::Linked;

/// An object that can live in a [`Slab`](super::Slab). Do not implement it by hand; use
/// [`slotted!`](crate::slotted).
///
/// # Safety
///
/// `state` always returns the same [`SlotState`], a field of the object itself, which no other
/// object returns.
pub unsafe trait Slotted: Linked<Handle = Slot<Self>> + Send + Sync + 'static {
    /// Returns the field with the state, which the slab, the index and the owner share.
    fn state(&self) -> &SlotState;

    /// Returns the approximate number of bytes that are freed with the object. Called once, when
    /// the object is retired: by the thread that drops its handle, or that removes it from the
    /// index if that comes later; without a lock. With `std`, a panic is counted in
    /// [`Slab::drop_panics`](super::Slab::drop_panics) and the object weighs the size of its type;
    /// without `std`, the panic goes on to that thread, and the object is leaked. A weigher that
    /// drops the handle of another object weighs that one inside its own call: a long chain of such
    /// objects overflows the stack.
    fn weight(&self) -> u64;
}

/// The unique handle of an object in a [`Slab`](super::Slab).
///
/// When the handle is dropped, the object is dropped and its slot is reused as soon as every reader
/// has left that may have found the object. Exception: an object that is still in an
/// [`ExtendibleIndex`](crate::ExtendibleIndex) stays there, without an owner, until it is removed
/// or the index is dropped.
///
/// A handle can be dropped after its slab, on any thread, and as late as in a thread's destructors.
/// A leaked handle leaks the object, its chunk of memory, and the slab's shared part.
///
/// A `Slot` is a [`Handle`](lowwater_lru_core::Handle): a list can own it.
///
/// The type is invariant, so that the handle of an object does not become that of a supertype,
/// whose [`SlotState`] may be another field. A reference may:
///
/// ```
/// # use core::marker::PhantomData;
/// # use lowwater_store::{slab::{Slot, SlotState}, slotted, CompressedLinks};
/// # struct Entry<F> {
/// #     links: CompressedLinks,
/// #     state: SlotState,
/// #     other_links: CompressedLinks,
/// #     other_state: SlotState,
/// #     function: PhantomData<F>,
/// # }
/// # type Any = for<'a> fn(&'a u8);
/// # type One = fn(&'static u8);
/// # slotted!(impl[] for Entry<Any> { links, state, weight: |_| 1 });
/// # slotted!(impl[] for Entry<One> { other_links, other_state, weight: |_| 1 });
/// fn shorten(any: &Entry<Any>) -> &Entry<One> {
///     any
/// }
/// fn keep(any: Slot<Entry<Any>>) -> Slot<Entry<Any>> {
///     any
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use core::marker::PhantomData;
/// # use lowwater_store::{slab::{Slot, SlotState}, slotted, CompressedLinks};
/// # struct Entry<F> {
/// #     links: CompressedLinks,
/// #     state: SlotState,
/// #     other_links: CompressedLinks,
/// #     other_state: SlotState,
/// #     function: PhantomData<F>,
/// # }
/// # type Any = for<'a> fn(&'a u8);
/// # type One = fn(&'static u8);
/// # slotted!(impl[] for Entry<Any> { links, state, weight: |_| 1 });
/// # slotted!(impl[] for Entry<One> { other_links, other_state, weight: |_| 1 });
/// fn shorten(any: Slot<Entry<Any>>) -> Slot<Entry<One>> {
///     any // error: one type is more general than the other
/// }
/// ```
pub struct Slot<T: Slotted>(pub(crate) NonNull<T>, pub(crate) PhantomData<fn(T) -> T>);

// SAFETY: the handle owns an object that is Send and Sync (bounds of `Slotted`); the slab to which
// the slot returns is behind locks.
unsafe impl<T: Slotted> Send for Slot<T> {}
// SAFETY: shared access gives `&T` only, of a type that is Sync (a bound of `Slotted`).
unsafe impl<T: Slotted> Sync for Slot<T> {}

impl<T: Slotted> Deref for Slot<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object is live while its handle exists.
        unsafe { self.0.as_ref() }
    }
}

/// Implements [`Linked`](lowwater_lru_core::Linked), with [`Slot`] as the handle, and [`Slotted`]
/// for a type with a field of type [`CompressedLinks`](crate::CompressedLinks) and one of type
/// [`SlotState`].
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
/// Both fields must be in the object itself, not behind a pointer:
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
/// struct Shared {
///     links: CompressedLinks,
///     state: Arc<SlotState>,
/// }
/// slotted!(impl[] for Shared { links, state, weight: |_| 1 }); // error: expected `*const SlotState`
/// ```
///
/// ```compile_fail,E0308
/// # use lowwater_store::{slab::SlotState, slotted, CompressedLinks};
/// # use std::sync::Arc;
/// struct Shared {
///     links: Arc<CompressedLinks>,
///     state: SlotState,
/// }
/// slotted!(impl[] for Shared { links, state, weight: |_| 1 }); // error: expected `*const CompressedLinks`
/// ```
#[macro_export]
macro_rules! slotted {
    (impl[$($generics:tt)*] for $type:ty { $links:tt, $state:tt, weight: $weight:expr $(,)? }) => {
        $crate::__lru_core::linked!(@impl[$($generics)*] for $type { $links: CompressedLinks, handle: $crate::slab::Slot<Self> });

        // SAFETY: the only handle is a `Slot`, so the object is in a slot of a slab.
        unsafe impl<$($generics)*> $crate::__lru_core::list::InSlots for $type {}

        // SAFETY: the state is a field of the object itself: `__own_field` compiles for nothing
        // else.
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
