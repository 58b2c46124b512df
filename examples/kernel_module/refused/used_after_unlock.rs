// SPDX-License-Identifier: GPL-2.0

//! An object is rotated after the callback has released the list's lock: refused.
//! `ci/rust-kernel.sh` requires exactly this error:
// error[E0382]: use of moved value

use kernel_lru::{ListLru, NodeId};

#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

pub(crate) fn refused(lru: &ListLru<u64>, node: NodeId) {
    lru.walk_one(None, node, &mut 10, |it| {
        let _unlocked = it.unlock();
        it.rotate()
    });
}
