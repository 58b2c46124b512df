// SPDX-License-Identifier: GPL-2.0

//! The shim's side of lowwater's RCU: the answer after a grace period, and the wait at the end.
//!
//! A change must keep the names, which `../shim.c` calls.

use kernel::prelude::*;

extern "C" {
    fn lowwater_shim_drain();
    fn lowwater_shim_allocations() -> isize;
    fn lowwater_shim_refusals() -> isize;
}

/// Dropped after everything of lowwater, it waits until no object waits for RCU, and reports the
/// allocations that are left and those that `fail_every` refused, which the guest checks.
pub(crate) struct Drained;

impl Drop for Drained {
    fn drop(&mut self) {
        // SAFETY: The module's lists are gone, so no thread retires more.
        unsafe { lowwater_shim_drain() };
        // SAFETY: The function has no requirements.
        let refused = unsafe { lowwater_shim_refusals() };
        pr_info!("{} allocations left, {refused} refused\n", allocations());
    }
}

/// The live allocations of lowwater's crates.
pub(crate) fn allocations() -> isize {
    // SAFETY: The function has no requirements.
    unsafe { lowwater_shim_allocations() }
}

/// Called by the shim after the grace period that it was asked for.
///
/// # Safety
///
/// A grace period has passed since the request.
#[no_mangle]
unsafe extern "C" fn lowwater_readers_left() {
    // SAFETY: A grace period has passed since the request (this function's requirement).
    unsafe { lowwater_lru_core::embedder::readers_left() }
}

/// Called by the shim: the number of objects that wait for RCU or are being freed; at least 1 while
/// a request is open.
#[no_mangle]
extern "C" fn lowwater_waiting() -> usize {
    lowwater_lru_core::embedder::waiting() as usize
}
