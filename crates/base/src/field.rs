//! Helper macros for the macros that implement an unsafe trait for a type with a certain field.
//!
//! Without these checks safe code could name a field that only dereferences to the wanted type, or
//! close the macro's brackets and inject an `unsafe impl`. Each macro that implements an unsafe
//! trait must call both.

/// Compiles only if `Self` itself has the field, of exactly this type, at an aligned address:
/// `offset_of!` finds no field through a `Deref` of the object, `&raw` is not coerced through a
/// `Deref` of the field, and `&` is an error for a packed field.
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

/// Compiles only if the tokens are generic parameters: other tokens could close the bracket of the
/// caller's `unsafe impl<..>` and write an unsafe impl of anything. Tokens that close the bracket
/// of the function here must continue with `(`. In the caller they then begin an inherent impl,
/// which cannot be unsafe.
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
