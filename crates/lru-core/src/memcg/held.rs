//! A handle on a group in a structure that readers without a lock read while the handle is given
//! up.

use super::group::Memcg;
use core::mem::ManuallyDrop;
use core::ptr;

/// A handle that is given up once, by [`release`](Self::release) and not by a drop, and whose
/// address stays to compare with.
pub(crate) struct HeldMemcg(ManuallyDrop<Memcg>);

impl HeldMemcg {
    pub(crate) fn new(memcg: Memcg) -> Self {
        Self(ManuallyDrop::new(memcg))
    }

    /// [`Memcg::addr`] of the group, which does not look at the group. No other group has it as
    /// long as the handle is not given up.
    #[inline]
    pub(crate) fn addr(&self) -> usize {
        self.0.addr()
    }

    /// # Safety
    ///
    /// The handle is not given up as long as the answer is used.
    #[inline]
    pub(crate) unsafe fn get(&self) -> &Memcg {
        &self.0
    }

    /// Gives the handle up.
    ///
    /// # Safety
    ///
    /// It was not given up before.
    pub(crate) unsafe fn release(&self) {
        // SAFETY: the handle is valid and is taken out once (clause of the caller); what stays
        // behind is never dropped, and is looked at by its address alone (clause of `get`).
        drop(unsafe { ptr::read(&*self.0) });
    }
}
