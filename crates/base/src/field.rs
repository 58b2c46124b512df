//! Macros for the macros that implement an unsafe trait for a type with a certain field.

/// Does not compile unless `Self` has the field, itself and of this very type, at an address that the type may have: neither
/// `offset_of!` nor `&raw` goes through a `Deref` of the object or of the field, and `&` is refused for a packed one.
#[doc(hidden)]
#[macro_export]
macro_rules! __own_field {
    ($field:tt: $of:ty) => {
        let _ = $crate::__core::mem::offset_of!(Self, $field);
        let _own: fn(&Self) -> *const $of = |object| {
            let _ = &object.$field;
            &raw const object.$field
        };
    };
}

/// Does not compile unless the tokens are generic parameters: other tokens could close the bracket of an `unsafe impl` and write
/// an unsafe impl of anything. Tokens that close the bracket here, too, must go on with `(`, which makes the other an inherent
/// impl, and that may not be unsafe.
#[doc(hidden)]
#[macro_export]
macro_rules! __generic_parameters {
    ($($generics:tt)*) => {
        const _: () = {
            #[allow(clippy::extra_unused_type_parameters, clippy::extra_unused_lifetimes)]
            fn _parameters<$($generics)*>() {}
        };
    };
}
