//! A store command while its value is received, by either protocol's decoder.
//!
//! A change must ensure that memory for a value is charged before it is allocated.

use std::sync::Arc;

use crate::protocol::command::{StoreCommand, StoreVerb};
use crate::protocol::meta_command::MetaStore;
use crate::receive_budget::{ReceiveBudget, ReceiveCharge};
use crate::value::data::{Data, DataBuilder};
use crate::value::piece_pool::PiecePool;

/// A store command and the value that follows it. Public fields are those of [`StoreCommand`].
#[derive(Debug)]
pub struct StoreRequest {
    pub verb: StoreVerb,
    pub key: Box<[u8]>,
    pub flags: u32,
    pub exptime: i64,
    pub unique: u64,
    pub noreply: bool,
    /// The part that only an `ms` has.
    pub meta: Option<Box<MetaStore>>,
    value: DataBuilder,
    charge: ReceiveCharge,
    /// The two bytes after the value, as far as they were received.
    pub(super) end: [u8; 2],
    end_length: usize,
}

impl StoreRequest {
    /// Creates the request of a text command: a line end follows the value.
    pub fn new(store: StoreCommand<'_>, pool: &Arc<PiecePool>, receive_budget: Option<&Arc<ReceiveBudget>>) -> Self {
        Self {
            verb: store.verb,
            key: store.key.into_owned().into(),
            flags: store.flags,
            exptime: store.exptime,
            unique: store.unique,
            noreply: store.noreply,
            meta: store.meta,
            value: DataBuilder::new(store.length, pool),
            charge: ReceiveCharge::new(receive_budget, store.length),
            end: [0; 2],
            end_length: 0,
        }
    }

    /// Creates the request of the binary protocol: nothing follows the value.
    pub fn of_binary(
        store: StoreCommand<'_>,
        pool: &Arc<PiecePool>,
        receive_budget: Option<&Arc<ReceiveBudget>>,
    ) -> Self {
        let request = Self::new(store, pool, receive_budget);
        Self { end_length: request.end.len(), ..request }
    }

    /// Returns the value and its charge. The caller has received the value completely.
    pub fn into_data(self) -> (Data, ReceiveCharge) {
        (self.value.finish(), self.charge)
    }

    /// Consumes the bytes of this request from the front of `input`, and returns their number and
    /// the progress.
    pub fn take(&mut self, input: &[u8]) -> (usize, ReceiveProgress) {
        if !self.charge.charge_up_to(self.value.len() + input.len().min(self.value.missing())) {
            return (0, ReceiveProgress::NoRoom);
        }
        let mut taken = self.value.extend(input);
        while self.value.is_complete() && self.end_length < self.end.len() && taken < input.len() {
            self.end[self.end_length] = input[taken];
            self.end_length += 1;
            taken += 1;
        }
        (taken, if self.missing() == 0 { ReceiveProgress::Complete } else { ReceiveProgress::More })
    }

    /// Returns the number of bytes that are still to be received.
    pub fn missing(&self) -> usize {
        self.value.missing() + self.end.len() - self.end_length
    }
}

/// Progress of a value that is being received.
pub enum ReceiveProgress {
    More,
    Complete,
    NoRoom,
}
