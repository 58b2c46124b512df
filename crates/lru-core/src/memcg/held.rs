//! A group handle inside a structure that lock-free readers may read while the handle is released.
//!
//! A list is freed only after a grace period, but its group's handle must be released at once, or
//! the group's id stays in use. So the handle is taken out first, while readers may still compare
//! its address.

use super::group::Memcg;
use core::mem::ManuallyDrop;
use core::ptr;

/// A handle that is released once, by [`release`](Self::release) and not by a drop. Its address
/// remains readable for comparison.
pub(crate) struct HeldMemcg(ManuallyDrop<Memcg>);

impl HeldMemcg {
    pub(crate) fn new(memcg: Memcg) -> Self {
        Self(ManuallyDrop::new(memcg))
    }

    /// Returns [`Memcg::addr`] of the group, without reading the group. It is unique as long as the
    /// handle is not released.
    #[inline]
    pub(crate) fn addr(&self) -> usize {
        self.0.addr()
    }

    /// Returns the handle.
    ///
    /// # Safety
    ///
    /// The handle is not released as long as the result is used.
    #[inline]
    pub(crate) unsafe fn get(&self) -> &Memcg {
        &self.0
    }

    /// Releases the handle.
    ///
    /// # Safety
    ///
    /// It was not released before.
    pub(crate) unsafe fn release(&self) {
        // SAFETY: the handle is valid, and is read out once (this function's clause). The bits that
        // remain are never dropped, and only their address is used (clause of `get`).
        drop(unsafe { ptr::read(&*self.0) });
    }
}
