//! The scope in which a thread publishes a loaded value, and must wait for no load.
//!
//! A change must ensure that code which the insert of the value calls, such as a listener, sees the
//! scope.

use std::cell::Cell;

use lowwater_shrinker::CallbackScope;

thread_local! {
    /// The number of loads that this thread is publishing, one inside the other.
    static PUBLISHING: Cell<usize> = const { Cell::new(0) };
}

/// A scope in which this thread publishes a loaded value, and followers wait for it.
pub(super) struct PublishScope {
    _scope: CallbackScope,
}

impl PublishScope {
    pub(super) fn begin() -> Self {
        PUBLISHING.set(PUBLISHING.get() + 1);
        Self { _scope: CallbackScope::enter() }
    }

    pub(super) fn is_here() -> bool {
        PUBLISHING.get() > 0
    }
}

impl Drop for PublishScope {
    fn drop(&mut self) {
        PUBLISHING.set(PUBLISHING.get() - 1);
    }
}
