//! Objects that are on lists only while they are in slots.

use super::link_layout::LinkLayout;
use super::linked::Linked;

/// An object that is on a list only while it is in a slot of a chunk.
///
/// Without this trait no type has links that are numbers of slots, so safe code makes none for
/// objects outside of slots:
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
/// Each handle of the type leads to an object in a slot of a chunk that is laid out as
/// [`ChunkLayout::of::<Self>()`](lowwater_base::slots::ChunkLayout::of) and registered.
pub unsafe trait InSlots: Linked {}

/// Returns the layout of [`CompressedLinks`](super::CompressedLinks), `offset` bytes into each `T`.
pub const fn in_slots<T: InSlots>(offset: usize) -> LinkLayout {
    // SAFETY: a list takes a `T` by a handle of the type, which leads to a slot of such a chunk
    // (the clause of `InSlots`).
    unsafe { LinkLayout::in_slots::<T>(offset) }
}
