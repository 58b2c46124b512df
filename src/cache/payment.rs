//! The bytes that a group was charged for a record that is not in the cache yet.
//!
//! They are uncharged when the payment is dropped: on every return that does not insert the record,
//! and if user code panics. A change must ensure that the insert of a record settles the payment
//! under the lock of the record's segment: after that, another thread may uncharge the record.

use lowwater_lru_core::{ByteSize, Memcg};

/// Charged bytes, see the [module](self).
pub(super) struct Payment<'a> {
    group: &'a Memcg,
    bytes: ByteSize,
}

impl<'a> Payment<'a> {
    /// Takes over bytes that `group` was charged before.
    pub(super) fn new(group: &'a Memcg, bytes: ByteSize) -> Self {
        Self { group, bytes }
    }

    pub(super) fn group(&self) -> &'a Memcg {
        self.group
    }

    /// Raises the payment to at least `bytes`, if `charge` returns true for the missing bytes.
    /// Returns false if `charge` does.
    #[inline]
    pub(super) fn raise_to(&mut self, bytes: ByteSize, charge: impl FnOnce(&Memcg, ByteSize) -> bool) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let is_paid = more == ByteSize::ZERO || charge(self.group, more);
        if is_paid {
            self.bytes = self.bytes.saturating_add(more);
        }
        is_paid
    }

    /// Takes the `bytes` of an inserted record out of the payment, after adding the `old` bytes of
    /// the record in whose place it was put: zero if the removal of that record uncharges it.
    #[inline]
    pub(super) fn settle(&mut self, old: ByteSize, bytes: ByteSize) {
        self.bytes = self.bytes.saturating_add(old).saturating_sub(bytes);
    }

    /// Reduces the payment to `bytes`: a value that readers hold has taken over the rest.
    pub(super) fn reduce_to(&mut self, bytes: ByteSize) {
        self.bytes = bytes;
    }
}

impl Drop for Payment<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.bytes > ByteSize::ZERO {
            self.group.uncharge(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowwater_lru_core::MemcgTree;

    fn bytes(bytes: u64) -> ByteSize {
        ByteSize::new(bytes)
    }

    #[test]
    fn what_is_not_settled_is_uncharged() {
        let tree = MemcgTree::new(0);
        let charge = |group: &Memcg, bytes| group.try_charge(bytes).is_ok();
        tree.root().set_max(bytes(150));
        let mut payment = Payment::new(tree.root(), ByteSize::ZERO);
        assert!(payment.raise_to(bytes(100), charge));
        assert!(payment.raise_to(bytes(40), |_, _| panic!("it is paid")));
        assert!(!payment.raise_to(bytes(151), charge), "a refused charge changes nothing");
        assert_eq!(tree.root().usage(), bytes(100));
        // A record of 60 bytes takes the place of one of 20, which was charged before.
        core::mem::forget(tree.root().try_charge(bytes(20)));
        payment.settle(bytes(20), bytes(60));
        drop(payment);
        assert_eq!(tree.root().usage(), bytes(60), "those of the record");
    }
}
