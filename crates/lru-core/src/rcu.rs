//! The read side, and freeing after it: a reader follows a pointer without a lock, so what it may still see is not freed yet.
//!
//! A reader [`pin`]s; as long as the guard lives, nothing that was reachable at or after the pin is freed. A writer first makes a
//! thing unreachable, then [`retire`](Guard::retire)s it. There is one read side for the whole process, as in a kernel: an
//! item says itself which list it is on, so who removes it must be allowed to look before knowing whose list that is.
//!
//! | build | how | cost of a pin |
//! |---|---|---|
//! | `std` | crossbeam-epoch's default collector | one fence, a thread-local line |
//! | without `std`, and under loom | readers are counted; the last one out frees | one shared counter |
//!
//! Nothing that is retired needs its destructor to run early: what must be given back at once (a group's handle, so that its id
//! returns) is taken out before.

#[cfg(any(lowwater_loom, not(feature = "std")))]
mod count;
#[cfg(all(not(lowwater_loom), feature = "std"))]
mod epoch;

#[cfg(any(lowwater_loom, not(feature = "std")))]
pub(crate) use count::{pin, Guard};
#[cfg(all(not(lowwater_loom), feature = "std"))]
pub(crate) use epoch::{pin, Guard};

/// A thing that can be retired.
pub(crate) trait Retired: Send + 'static {
    /// Tells a model checker that it is about to be freed, so that a reader who may still look at it is found out.
    #[cfg(lowwater_loom)]
    fn assert_unread(&mut self);
}
