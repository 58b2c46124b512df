//! The lease on the housekeeping: one thread has it at a time.

/// The right to work, of one thread at a time: how many had it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seat(pub(super) u64);

/// Another thread has taken the seat.
pub(super) struct Replaced;
