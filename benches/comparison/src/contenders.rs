//! The contenders, each built as its documentation recommends.
//!
//! No contender may be tuned beyond its documentation, ours included.

mod dashmap;
mod foyer;
mod lowwater;
mod lru;
mod mini_moka;
mod moka;
mod papaya;
mod quick_cache;
mod scc;

pub use dashmap::DashMap;
pub use foyer::Foyer;
pub use lowwater::Lowwater;
pub use lru::Lru;
pub use mini_moka::MiniMoka;
pub use moka::Moka;
pub use papaya::Papaya;
pub use quick_cache::QuickCache;
pub use scc::Scc;
