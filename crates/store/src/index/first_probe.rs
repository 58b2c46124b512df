//! The result of a first probe.

/// What a home bucket tells of a key: from [`ExtendibleIndex::probe_first`](crate::ExtendibleIndex::probe_first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstProbe<T> {
    /// The object is in its home bucket.
    Found(T),
    /// The object is not in the index.
    Absent,
    /// Not in its home bucket, whose overflow count is not zero: probe the following buckets.
    Overflowed,
}
