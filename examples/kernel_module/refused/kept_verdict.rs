// SPDX-License-Identifier: GPL-2.0

//! A verdict of one visit is returned at another one, whose lock it does not fit: refused.
//! `ci/rust-kernel.sh` requires exactly this error:
// error: lifetime may not live long enough

use kernel_lru::{ListLru, NodeId};

#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

pub(crate) fn refused(lru: &ListLru<u64>, node: NodeId) {
    let mut kept = None;
    lru.walk_one(None, node, &mut 10, |it| {
        let verdict = it.skip();
        kept.replace(verdict).unwrap()
    });
}
