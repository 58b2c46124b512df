//! An object that can be on a list.

use super::{Handle, Hook, Shape};
use core::ptr::NonNull;

/// An object with [`Links`](super::Links) or [`SlotLinks`](super::SlotLinks) inside. Do not implement it by hand:
/// [`linked!`](crate::linked) and [`slotted!`](crate::slotted) do, without unsafe code of yours.
///
/// # Safety
///
/// `links` and `from_links` are inverse and lead to links that are part of the object, always the same ones, of this shape. What has the
/// links of a slot is nowhere but in slots.
pub unsafe trait Linked: Sized {
    /// How a list owns the object: `Box<Self>`, `Arc<Self>`, or `Slot<Self>`.
    type Handle: Handle<Target = Self>;

    /// Which links it has.
    const SHAPE: &'static Shape;

    /// The links of an object.
    fn links(object: NonNull<Self>) -> NonNull<Hook>;

    /// The object of these links.
    ///
    /// # Safety
    ///
    /// `links` came from [`links`](Self::links) of this type.
    unsafe fn from_links(links: NonNull<Hook>) -> NonNull<Self>;
}

/// Implements [`Linked`] for a type that has a field of type [`Links`](crate::Links).
///
/// ```
/// #![forbid(unsafe_code)]
/// use lowwater_lru_core::{linked, Links};
/// use std::sync::Arc;
///
/// struct Inode {
///     links: Links,
///     number: u64,
/// }
/// linked!(impl[] for Inode { links, handle: Arc<Inode> });
///
/// struct Entry<K: Send, V> {
///     lru: Links,
///     key: K,
///     value: V,
/// }
/// linked!(impl[K: Send, V] for Entry<K, V> { lru, handle: Box<Entry<K, V>> });
/// ```
#[macro_export]
macro_rules! linked {
    (impl[$($generics:tt)*] for $type:ty { $field:tt, handle: $handle:ty $(,)? }) => {
        $crate::linked!(@impl[$($generics)*] for $type { $field: Links, handle: $handle });
    };
    // By either kind of links, which says the shape; for `slotted!`.
    (@impl[$($generics:tt)*] for $type:ty { $field:tt: $links:ident, handle: $handle:ty }) => {
        // SAFETY: `links` adds the field's offset to the object's address, `from_links` takes it off again, and the `as_links` line does
        // not compile unless the field is of the kind by which the shape was chosen.
        unsafe impl<$($generics)*> $crate::Linked for $type {
            type Handle = $handle;

            const SHAPE: &'static $crate::list::Shape = $crate::linked!(@shape $links $field);

            #[inline]
            fn links(object: ::core::ptr::NonNull<Self>) -> ::core::ptr::NonNull<$crate::list::Hook> {
                let _as_links: fn(&Self) -> &$crate::$links = |object| &object.$field;
                // SAFETY: the field lies inside the object.
                unsafe { object.byte_add(::core::mem::offset_of!(Self, $field)).cast() }
            }

            #[inline]
            unsafe fn from_links(links: ::core::ptr::NonNull<$crate::list::Hook>) -> ::core::ptr::NonNull<Self> {
                // SAFETY: `links` is the field of an object, says the caller, so the object begins before it.
                unsafe { links.byte_sub(::core::mem::offset_of!(Self, $field)).cast() }
            }
        }
    };
    (@shape Links $field:tt) => { $crate::list::Shape::ANYWHERE };
    (@shape SlotLinks $field:tt) => { &$crate::list::Shape::in_slots::<Self>(::core::mem::offset_of!(Self, $field)) };
}
