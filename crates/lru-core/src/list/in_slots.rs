//! The restriction of slot-number links to objects in slots.
//!
//! `slotted!` of `lowwater-store` implements the trait. Without it an object anywhere in memory
//! could be linked by a slot number that it does not have.
//!
//! A change must keep the trait unsafe to implement.

use super::link_layout::LinkLayout;
use super::linked::Linked;

/// An object that is on a list only while it is in a slot of a chunk.
///
/// Only a type with this trait can have links that are slot numbers, so safe code cannot create
/// them for objects outside of slots:
///
/// ```compile_fail,E0277
/// use lowwater_lru_core::{linked, CompressedLinks};
/// struct Boxed {
///     links: CompressedLinks,
/// }
/// linked!(@impl[] for Boxed { links: CompressedLinks, handle: Box<Boxed> }); // error: `Boxed: InSlots` is not satisfied
/// ```
///
/// # Safety
///
/// Every handle of the type points to an object in a slot of a chunk that is laid out as
/// [`ChunkLayout::of::<Self>()`](lowwater_base::slots::ChunkLayout::of) and registered.
pub unsafe trait InSlots: Linked {}

/// Returns the layout of [`CompressedLinks`](super::CompressedLinks), `offset` bytes into each `T`.
pub const fn in_slots<T: InSlots>(offset: usize) -> LinkLayout {
    // SAFETY: a list takes a `T` by a handle of the type, which points to an object in a slot of
    // such a chunk (clause of `InSlots`).
    unsafe { LinkLayout::in_slots::<T>(offset) }
}
