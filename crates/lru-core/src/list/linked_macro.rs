//! The macro that implements `Linked` for a type.
//!
//! This macro, on which `slotted!` of `lowwater-store` builds, is the only safe way to implement
//! the unsafe trait. A change must keep the compile-fail tests in its documentation: a field that
//! only dereferences to links must not compile.

/// Implements [`Linked`](crate::Linked) for a type with a field of type [`Links`](crate::Links).
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
/// The links must be a part of the object itself, not of another object that it points to:
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
/// The check also works if the program uses the name `core` for another crate:
///
/// ```compile_fail,E0308
/// # use lowwater_lru_core::{linked, Links};
/// extern crate lowwater_lru_core as core;
/// struct Boxed(Box<Links>);
/// linked!(impl[] for Boxed { 0, handle: Box<Boxed> });
/// # fn main() {}
/// ```
///
/// The brackets accept generic parameters, and nothing else:
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
    // Used by `slotted!`, too: `$links` is `Links` or `CompressedLinks`, and determines the layout.
    // Safe code can name this arm, so the layout of compressed links requires a type with
    // `InSlots`.
    (@impl[$($generics:tt)*] for $type:ty { $field:tt: $links:ident, handle: $handle:ty }) => {
        $crate::__base::__generic_parameters!($($generics)*);

        // SAFETY: `links` adds the field's offset to the object's address, `from_links` subtracts
        // it, and `__own_field!` does not compile unless the field is a part of the object, of type
        // `$links`, from which the layout follows (clause 1 of `Linked`). A layout of slots does
        // not compile unless the type has `InSlots` (clause 2).
        unsafe impl<$($generics)*> $crate::Linked for $type {
            type Handle = $handle;

            const LAYOUT: &'static $crate::list::LinkLayout = $crate::linked!(@layout $links $field);

            #[inline]
            unsafe fn links(object: $crate::__core::ptr::NonNull<Self>) -> $crate::__core::ptr::NonNull<$crate::list::Hook> {
                $crate::__base::__own_field!($field: $crate::$links);
                // SAFETY: the field lies inside the object's memory (this function's clause).
                unsafe { object.byte_add($crate::__core::mem::offset_of!(Self, $field)).cast() }
            }

            #[inline]
            unsafe fn from_links(links: $crate::__core::ptr::NonNull<$crate::list::Hook>) -> $crate::__core::ptr::NonNull<Self> {
                // SAFETY: `links` is the field of an object (this function's clause), so the
                // object begins this many bytes before it.
                unsafe { links.byte_sub($crate::__core::mem::offset_of!(Self, $field)).cast() }
            }
        }
    };
    (@layout Links $field:tt) => { $crate::list::LinkLayout::ANYWHERE };
    (@layout CompressedLinks $field:tt) => { &$crate::list::in_slots::<Self>($crate::__core::mem::offset_of!(Self, $field)) };
}
