//! An end that a panic does not skip.
//!
//! `std::thread::scope` joins its threads also when its closure panics, because a thread does not
//! start or a print fails. Threads that work until a flag is set would then run for ever.
//!
//! A change must ensure that the function is called in every case.

/// Calls its function when it is dropped. It belongs before the first thread of a scope.
pub struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
