//! The trait of objects that can be on a list.
//!
//! Do not implement the trait by hand: `linked!` and `slotted!` check that the field exists, is the
//! object's own, and is aligned.
//!
//! A supertype of `T` may have its own implementation of the trait, which names other links. A type
//! that safe code outside of this crate can hold, that owns or leads to a `T` and calls functions
//! of the trait, must be invariant in `T`.
//!
//! A change of the conditions must be checked by both macros.

use super::handle::Handle;
use super::hook::Hook;
use super::link_layout::LinkLayout;
use super::link_ref::LinkRef;
use core::ptr::NonNull;

/// An object with [`Links`](super::Links) or [`CompressedLinks`](super::CompressedLinks) inside.
/// Implement it with [`linked!`](crate::linked), or `slotted!` of `lowwater-store`, which need no
/// unsafe code, and not by hand.
///
/// # Safety
///
/// 1. `links` and `from_links` are inverse and only do pointer arithmetic: they lead to links that
///    are part of the object, always the same ones, of the layout `LAYOUT`.
/// 2. If `LAYOUT` is one of slots, every object on a list is in a slot.
pub unsafe trait Linked: Sized {
    /// How a list owns the object: `Box<Self>`, `Arc<Self>`, or `Slot<Self>`.
    type Handle: Handle<Target = Self>;

    /// The layout of the object's links.
    const LAYOUT: &'static LinkLayout;

    /// Returns the links of an object.
    ///
    /// # Safety
    ///
    /// `object` points to memory of the object's layout, in one allocation.
    unsafe fn links(object: NonNull<Self>) -> NonNull<Hook>;

    /// Returns the object that contains these links.
    ///
    /// # Safety
    ///
    /// `links` came from [`links`](Self::links) of this type, and the object has not moved since.
    unsafe fn from_links(links: NonNull<Hook>) -> NonNull<Self>;
}

/// Returns the handle by which a list owned the object whose links were pushed as `pushed`.
///
/// # Safety
///
/// 1. `pushed` names the links of a `T` that a list has given up.
/// 2. The object's handle is taken back once.
#[inline]
pub(crate) unsafe fn handle_of<T: Linked>(pushed: LinkRef) -> T::Handle {
    // SAFETY: a given-up object stays live until its handle is dropped (clause 1).
    let links = unsafe { T::LAYOUT.get(pushed) };
    // SAFETY: `links` are the links of a `T` (clause 1).
    let object = unsafe { T::from_links(links) };
    // SAFETY: `into_raw` made this pointer when the object was added (clause 1), and it is taken
    // back once (clause 2).
    unsafe { T::Handle::from_raw(object) }
}
