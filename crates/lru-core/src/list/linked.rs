//! An object that can be on a list.

use super::{Handle, Hook, Shape};
use core::ptr::NonNull;

/// An object with [`Links`](super::Links) or [`SlotLinks`](super::SlotLinks) inside. Do not implement it by hand:
/// [`linked!`](crate::linked) and [`slotted!`](crate::slotted) do, without unsafe code of yours.
///
/// # Safety
///
/// 1. `links` and `from_links` are inverse and only do arithmetic: they lead to links that are part
///    of the object, always the same ones, of this shape.
/// 2. What has the links of a slot is nowhere but in slots.
pub unsafe trait Linked: Sized {
    /// How a list owns the object: `Box<Self>`, `Arc<Self>`, or `Slot<Self>`.
    type Handle: Handle<Target = Self>;

    /// Which links it has.
    const SHAPE: &'static Shape;

    /// The links of an object.
    ///
    /// # Safety
    ///
    /// `object` points to memory of the object's layout, in one allocation.
    unsafe fn links(object: NonNull<Self>) -> NonNull<Hook>;

    /// The object of these links.
    ///
    /// # Safety
    ///
    /// `links` came from [`links`](Self::links) of this type, and the object is where it was.
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
///
/// The links are a part of the object itself, and not of one that it leads to:
///
/// ```compile_fail,E0308
/// # use lowwater_lru_core::{linked, Links};
/// struct Boxed {
///     links: Box<Links>,
/// }
/// linked!(impl[] for Boxed { links, handle: Box<Boxed> }); // error: expected `*const Links`
/// ```
///
/// ```compile_fail,E0308
/// # use lowwater_lru_core::{linked, Links};
/// # use std::sync::Arc;
/// struct Shared {
///     links: Arc<Links>,
/// }
/// linked!(impl[] for Shared { links, handle: Arc<Shared> }); // error: expected `*const Links`
/// ```
///
/// ```compile_fail,E0609
/// # use lowwater_lru_core::{linked, Links};
/// # struct Inner {
/// #     links: Links,
/// # }
/// struct Outer(Box<Inner>);
/// impl core::ops::Deref for Outer {
///     type Target = Inner;
///     fn deref(&self) -> &Inner {
///         &self.0
///     }
/// }
/// linked!(impl[] for Outer { links, handle: Box<Outer> }); // error: no field `links` on type `Outer`
/// ```
///
/// ```compile_fail,E0793
/// # use lowwater_lru_core::{linked, Links};
/// #[repr(packed)]
/// struct Packed {
///     byte: u8,
///     links: Links,
/// }
/// linked!(impl[] for Packed { links, handle: Box<Packed> }); // error: reference to field of packed struct is unaligned
/// ```
///
/// Whatever the program calls `core`:
///
/// ```compile_fail,E0308
/// # use lowwater_lru_core::{linked, Links};
/// extern crate lowwater_lru_core as core;
/// struct Boxed(Box<Links>);
/// linked!(impl[] for Boxed { 0, handle: Box<Boxed> });
/// # fn main() {}
/// ```
///
/// Between the brackets are parameters, and nothing else:
///
/// ```compile_fail
/// # use lowwater_lru_core::{linked, Links};
/// # struct Item(Links);
/// struct Evil(std::rc::Rc<u8>);
/// linked!(impl[> Send for Evil {} #[cfg(any())] unsafe impl<] for Item { 0, handle: Box<Item> }); // error: expected `(`
/// ```
#[macro_export]
macro_rules! linked {
    (impl[$($generics:tt)*] for $type:ty { $field:tt, handle: $handle:ty $(,)? }) => {
        $crate::linked!(@impl[$($generics)*] for $type { $field: Links, handle: $handle });
    };
    // By either kind of links, which says the shape; for `slotted!`.
    (@impl[$($generics:tt)*] for $type:ty { $field:tt: $links:ident, handle: $handle:ty }) => {
        $crate::linked!(@parameters[$($generics)*]);

        // SAFETY: `links` adds the field's offset to the object's address, `from_links` takes it
        // off again, and `@own` does not compile unless the field is a part of the object, of the
        // kind by which the shape was chosen (clause 1). Links of a slot come with a slot for a
        // handle (clause 2).
        unsafe impl<$($generics)*> $crate::Linked for $type {
            type Handle = $handle;

            const SHAPE: &'static $crate::list::Shape = $crate::linked!(@shape $links $field);

            #[inline]
            unsafe fn links(object: $crate::__core::ptr::NonNull<Self>) -> $crate::__core::ptr::NonNull<$crate::list::Hook> {
                $crate::linked!(@own $field: $crate::$links);
                // SAFETY: the field lies inside the object (clause of the caller).
                unsafe { object.byte_add($crate::__core::mem::offset_of!(Self, $field)).cast() }
            }

            #[inline]
            unsafe fn from_links(links: $crate::__core::ptr::NonNull<$crate::list::Hook>) -> $crate::__core::ptr::NonNull<Self> {
                // SAFETY: `links` is the field of an object (clause of the caller), so the object
                // begins before it.
                unsafe { links.byte_sub($crate::__core::mem::offset_of!(Self, $field)).cast() }
            }
        }
    };
    (@shape Links $field:tt) => { $crate::list::Shape::ANYWHERE };
    (@shape SlotLinks $field:tt) => { &$crate::list::Shape::in_slots::<Self>($crate::__core::mem::offset_of!(Self, $field)) };
    // Does not compile unless `Self` has the field, itself and of this very type, at an address
    // that the type may have: neither `offset_of!` nor `&raw` goes through a `Deref` of the object
    // or of the field, and `&` is refused for a packed one.
    (@own $field:tt: $of:ty) => {
        let _ = $crate::__core::mem::offset_of!(Self, $field);
        let _own: fn(&Self) -> *const $of = |object| {
            let _ = &object.$field;
            &raw const object.$field
        };
    };
    // Does not compile unless these are parameters: other tokens could close the bracket of the
    // `unsafe impl` and write an unsafe impl of anything. Tokens that close the bracket here, too,
    // must go on with `(`, which makes the other an inherent impl, and that may not be unsafe.
    (@parameters[$($generics:tt)*]) => {
        const _: () = {
            #[allow(clippy::extra_unused_type_parameters, clippy::extra_unused_lifetimes)]
            fn _parameters<$($generics)*>() {}
        };
    };
}
