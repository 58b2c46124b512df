//! A handle on a group in a structure that readers without a lock look at while the handle is given
//! up.

use super::{Memcg, MemcgCore};
use crate::sync::Arc;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;

/// A handle that is given up once, by [`release`](Self::release) and not by a drop, and whose
/// address stays to compare with.
pub(crate) struct HeldMemcg(*const MemcgCore);

/// A [`HeldMemcg`] as a handle, for as long as that is not given up.
pub(crate) struct Borrowed<'a>(ManuallyDrop<Memcg>, PhantomData<&'a HeldMemcg>);

impl HeldMemcg {
    pub(crate) fn new(memcg: Memcg) -> Self {
        Self(Arc::into_raw(memcg.0))
    }

    /// [`Memcg::addr`] of the group. No other group has it as long as the handle is not given up.
    #[inline]
    pub(crate) fn addr(&self) -> usize {
        self.0.addr()
    }

    /// # Safety
    ///
    /// The handle is not given up as long as the answer is used.
    #[inline]
    pub(crate) unsafe fn get(&self) -> Borrowed<'_> {
        // SAFETY: it came from `Arc::into_raw`, and its count is not given up (clause of the
        // caller); this one is never dropped.
        Borrowed(ManuallyDrop::new(Memcg(unsafe { Arc::from_raw(self.0) })), PhantomData)
    }

    /// Gives the handle up.
    ///
    /// # Safety
    ///
    /// It was not given up before.
    pub(crate) unsafe fn release(&self) {
        // SAFETY: it came from `Arc::into_raw`, and its count is given up once (clause of the
        // caller).
        drop(Memcg(unsafe { Arc::from_raw(self.0) }));
    }
}

impl Deref for Borrowed<'_> {
    type Target = Memcg;

    #[inline]
    fn deref(&self) -> &Memcg {
        &self.0
    }
}
