// SPDX-License-Identifier: MIT OR Apache-2.0
//! The panic, for a kernel without Rust of its own.
//!
//! A `no_std` library needs a panic handler, and such a kernel has none.
//!
//! A change must ensure that the place of a panic reaches the kernel's log.

use core::panic::PanicInfo;

unsafe extern "C" {
    fn lowwater_shim_bug(file: *const u8, len: usize, line: u32) -> !;
}

/// Reports the place of a panic to the kernel. No code here is meant to panic: `panics.txt` lists
/// the places that could, and `ci/kmod.sh` fails on others.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let (file, line) = info.location().map_or(("?", 0), |at| (at.file(), at.line()));
    // SAFETY: the text is `len` bytes long.
    unsafe { lowwater_shim_bug(file.as_ptr(), file.len(), line) }
}
