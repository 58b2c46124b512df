//! Why records leave a cache.

/// Why an entry left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// Its time was over.
    Expired,
    /// Somebody removed it, or dropped its group.
    Explicit,
    /// Another value was put under its key.
    Replaced,
    /// Its memory was needed.
    Size,
}
