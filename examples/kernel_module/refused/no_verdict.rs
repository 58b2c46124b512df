// SPDX-License-Identifier: GPL-2.0

//! A callback returns no verdict: refused. `ci/rust-kernel.sh` requires exactly this error:
// error[E0308]: mismatched types

use kernel_lru::{ListLru, NodeId};

#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

pub(crate) fn refused(lru: &ListLru<u64>, node: NodeId) {
    lru.walk_one(None, node, &mut 10, |it| {
        let _ = it.item();
    });
}
