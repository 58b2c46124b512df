// SPDX-License-Identifier: GPL-2.0

//! A verdict is made without a visit: refused, as its fields are private.
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
