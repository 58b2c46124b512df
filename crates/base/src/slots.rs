//! Slots of objects in chunks of memory, and the 32-bit numbers by which compressed pointers refer
//! to them.
//!
//! The slab of `lowwater-store` allocates in these chunks; the lists of `lowwater-lru-core` use the
//! numbers as links. Both crates need the layout, so it is in this one.

pub mod chunk_header;
pub mod chunk_layout;
pub mod chunk_table;
pub mod ptr_compressor;

pub use chunk_header::{ChunkHeader, ChunkOwner};
pub use chunk_layout::ChunkLayout;
pub use chunk_table::ChunkTable;
pub use ptr_compressor::PtrCompressor;
