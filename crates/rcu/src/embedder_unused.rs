//! The embedder's calls in builds with `std`, where the embedder's read side is not used.
//!
//! `lowwater_lru_core::embedder` exports these functions whenever the feature `embedder` is
//! enabled, so a program that enables `std` as well still compiles.

/// Does nothing: with `std` the embedder's read side is not used.
///
/// # Safety
///
/// None; `unsafe` as in the build without `std`.
pub unsafe fn readers_left() {}

/// Returns 0: with `std` no object waits for the embedder's readers.
pub fn waiting() -> usize {
    0
}
