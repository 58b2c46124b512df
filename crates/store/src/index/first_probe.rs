//! The result of a first probe.
//!
//! The probe of the home bucket is separate so that a caller can inline it alone; in nearly all
//! lookups it is the only one.
//!
//! A change must ensure that `Absent` is returned only if no following bucket can have the key.

/// The result of probing the home bucket of a key, from
/// [`ExtendibleIndex::probe_first`](crate::ExtendibleIndex::probe_first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstProbe<T> {
    /// The object is in its home bucket.
    Found(T),
    /// The object is not in the index.
    Absent,
    /// The object is not in its home bucket, and the bucket's overflow count is not zero: probe the
    /// following buckets.
    Overflowed,
}
