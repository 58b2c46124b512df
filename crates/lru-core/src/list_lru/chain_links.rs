//! The links of a list on its group's chain.
//!
//! They are a type of their own because their two cells have a second use once the list is dead:
//! `next` is then the forward and `prev` the link of the retire queue. A change must ensure that
//! each cell is reused only after the list is off the chain.

use crate::sync::UnsafeCell;
use core::ptr;

/// The neighbours of a list on its group's chain. Two cells, since a dead list uses each of them
/// for a separate purpose (see [`ListLruOne`](super::list_lru_one::ListLruOne)).
pub(crate) struct ChainLinks<L> {
    pub(super) next: UnsafeCell<*mut L>,
    pub(super) prev: UnsafeCell<*mut L>,
}

impl<L> ChainLinks<L> {
    pub(super) fn new() -> Self {
        Self { next: UnsafeCell::new(ptr::null_mut()), prev: UnsafeCell::new(ptr::null_mut()) }
    }
}
