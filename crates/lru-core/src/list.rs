//! Intrusive lists: the links live in the object, so that adding and removing allocate nothing.
//!
//! ```text
//!     RawList { first, last }
//!         |                          \
//!         v                           v
//!     Hook <---prev/next---> ... Hook      each in its object, which the list owns by a raw Handle
//! ```
//!
//! Links refer to each other by address ([`Links`]: 24 bytes). If all objects are in slots of a
//! `Slab` of `lowwater-store`, they may refer to each other by slot number instead
//! ([`CompressedLinks`]: 16 bytes).
//!
//! The intrusive-collections crate is the maintained library for intrusive lists, and was
//! considered first. Its lists are owned by one place and have a static element type. The lists of
//! this crate are spliced between groups under two locks, must be found from the element alone (a
//! [`Hook`] names its list), and are walked by code that does not have the type.

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
