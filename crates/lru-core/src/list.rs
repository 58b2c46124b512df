//! Intrusive lists: the links live in the object, so that adding and removing allocate nothing.
//!
//! ```text
//!     RawList { first, last }
//!         |                          \
//!         v                           v
//!     Hook <---prev/next---> ... Hook      each inside its object, which its list owns by a Handle turned raw
//! ```
//!
//! Links name each other by address ([`Links`]: 24 bytes), or, where all objects are in slots of a `Slab` of `lowwater-store`, by the numbers of
//! their slots ([`CompressedLinks`]: 16 bytes).
//!
//! The intrusive-collections crate is the well-kept library for this, and was weighed first. Its lists are owned by one place
//! and know their element type; ours are spliced between groups under two locks, must be found from the element alone
//! (a [`Hook`] names the list it is on), and are walked by code that does not know the type.

mod compressed_links;
mod cursor_link;
mod handle;
mod hook;
mod in_slots;
mod link_layout;
mod link_ref;
mod linked;
mod linked_macro;
mod links;
mod raw_list;
mod raw_queue;
mod tail_and_prefetch;
#[cfg(all(test, not(lowwater_loom)))]
pub(crate) mod test_arena;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

pub use compressed_links::CompressedLinks;
pub(crate) use cursor_link::CursorLink;
pub use handle::Handle;
#[doc(hidden)]
pub use hook::Hook;
pub(crate) use hook::ListHome;
#[doc(hidden)]
pub use in_slots::{in_slots, InSlots};
#[doc(hidden)]
pub use link_layout::LinkLayout;
#[doc(hidden)]
pub use link_ref::{LinkNode, LinkRef};
pub(crate) use linked::handle_of;
pub use linked::Linked;
pub use links::Links;
pub(crate) use raw_list::RawList;
#[doc(hidden)]
pub use raw_queue::RawQueue;
