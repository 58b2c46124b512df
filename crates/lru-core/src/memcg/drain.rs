//! Filling and draining the stock.
//!
//! Separate from `stock.rs`, which changes no counter: here the bytes that leave a slot are
//! uncharged, after the slot's lock is released.
//!
//! A change must ensure that each drained byte is uncharged exactly once.

use super::group::{Memcg, Tree};
use super::stock::Drained;

impl Tree {
    /// Puts bytes that are charged to `memcg` into the stock, or uncharges them if they do not fit.
    pub(super) fn put_stock(&self, memcg: &Memcg, bytes: u64) {
        match self.stock().put(memcg, bytes, || memcg.is_within_max()) {
            Ok(displaced) => uncharge(displaced),
            Err(_) => {
                memcg.sub_usage(bytes);
            }
        }
    }

    /// Empties each stock slot for whose group `selected` returns true.
    pub(super) fn drain_stock(&self, selected: impl Fn(&Memcg) -> bool) {
        uncharge(self.stock().drain(selected));
    }

    /// As [`drain_stock`](Self::drain_stock), but the groups keep their slots.
    pub(super) fn drain_stock_bytes(&self, selected: impl Fn(&Memcg) -> bool) {
        uncharge(self.stock().drain_bytes(selected));
    }

    /// Empties the stock for good.
    pub(super) fn close_stock(&self) {
        self.stock().close();
        self.drain_stock(|_| true);
    }
}

/// Uncharges drained bytes and drops the handles, one after the other, outside of the slots' locks.
fn uncharge(drained: impl IntoIterator<Item = Drained<Memcg>>) {
    for (memcg, bytes) in drained {
        memcg.sub_usage(bytes);
    }
}
