//! The causes for which records leave a cache.
//!
//! Passed to the listener and counted by cause. The numbers are stored in a record's state.
//!
//! A change of a number must be made in `record.rs`, too.

/// The cause for which an entry left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// The entry's deadline had passed.
    Expired,
    /// The entry was removed by a call, or its group was dropped.
    Explicit,
    /// Another value was inserted under the entry's key.
    Replaced,
    /// The entry was evicted because its memory was needed; or, rarely, was isolated to be evicted
    /// while another thread removed it for another cause.
    Size,
}
