//! Which thread is this? Known under `std` (and to loom); without it nobody can tell.

/// The thread that calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller(#[cfg(any(feature = "std", lowwater_loom))] Id);

#[cfg(all(feature = "std", not(lowwater_loom)))]
type Id = std::thread::ThreadId;
#[cfg(lowwater_loom)]
type Id = loom::thread::ThreadId;

impl Caller {
    /// Does this build know one thread from another? Where not, re-entry cannot be noticed and is up to the embedder.
    pub(crate) const KNOWN: bool = cfg!(any(feature = "std", lowwater_loom));

    pub(crate) fn current() -> Self {
        Self(
            #[cfg(any(feature = "std", lowwater_loom))]
            lowwater_lru_core::sync::thread::current().id(),
        )
    }
}
