// SPDX-License-Identifier: GPL-2.0

//! A verdict on an object is made without a visit to it: refused, as the fields are private.
//!
//! An `Unlocked` proves that the callback released the list's lock, and the walk takes the lock
//! again: with a forged one it would deadlock. `ci/rust-kernel.sh` requires exactly this error:
// error[E0451]: fields

use core::marker::PhantomData;
use kernel_lru::{LruStatus, Unlocked};

#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

pub(crate) fn refused<'a>() -> LruStatus<'a> {
    Unlocked {
        removed: false,
        call: PhantomData,
    }
    .stop()
}
