//! The guarantees of a tree:
//!
//! 1. Ids are dense, unique among groups that exist, the lowest free first, and reused only when
//!    the last handle is gone.
//! 2. The id of a dying group refers to its nearest online ancestor.
//! 3. Names are unique among online siblings, and free again at once when a group goes offline.
//! 4. `usage` is the sum of the bytes charged here and below and of the bytes that processors hold
//!    in stock for them (charged, not used yet; `stock.rs`), and a charge never takes it above
//!    `max`.
//! 5. A walk visits each group that is online throughout exactly once.
//! 6. Parents go offline after their children.
//! 7. A group's effective protection is bounded by its ancestors'.
//!
//! `model` checks 1-4 against a simple reference implementation, step by step. For 7 it checks the
//! sums of the children's claims, from which protection is computed. `walk` checks 5, `life` 6,
//! `protection` 7. `stress` and `loom` run several threads.
//!
//! A change must ensure that each guarantee is checked by a module of this folder.

#[cfg(not(lowwater_loom))]
mod life;
#[cfg(lowwater_loom)]
mod loom;
#[cfg(not(lowwater_loom))]
mod model;
#[cfg(not(lowwater_loom))]
mod protection;
#[cfg(all(not(lowwater_loom), feature = "std"))]
mod stress;
#[cfg(not(lowwater_loom))]
mod walk;
