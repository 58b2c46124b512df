//! Fault injection for model checks: a model check that cannot fail proves nothing.
//!
//! Code whose ordering matters calls [`mutated!`](crate::mutated) with the name of a fault, and
//! leaves the ordering out if the result is true. In all builds but the model checks' the result is
//! the constant `false`, and the call is optimized out. A model check runs once with the code
//! unchanged, and once inside `with_mutant` for each fault; these runs must fail. docs/ORDERINGS.md
//! lists the faults by name.

/// Returns whether the fault `name` is injected in the current model check. Constant `false`
/// outside loom builds.
#[doc(hidden)]
#[macro_export]
macro_rules! mutated {
    ($name:literal) => {
        $crate::sync::mutated($name)
    };
}

/// The function behind [`mutated!`](crate::mutated).
#[cfg(not(lowwater_loom))]
#[inline(always)]
pub const fn mutated(_name: &str) -> bool {
    false
}

#[cfg(lowwater_loom)]
mod imp {
    extern crate std;
    use core::cell::Cell;

    // loom runs all threads of a model on the OS thread of the test that started it, so there is
    // one cell per model check.
    std::thread_local! { static ACTIVE: Cell<&'static str> = const { Cell::new("") }; }

    /// The function behind [`mutated!`](crate::mutated).
    pub fn mutated(name: &str) -> bool {
        ACTIVE.with(|a| a.get() == name)
    }

    /// Runs `check` with the fault `name` injected; for `#[should_panic]` tests.
    pub fn with_mutant(name: &'static str, check: impl FnOnce()) {
        struct Off;
        impl Drop for Off {
            fn drop(&mut self) {
                ACTIVE.with(|a| a.set(""));
            }
        }
        let _off = Off;
        ACTIVE.with(|a| a.set(name));
        check();
    }
}

#[cfg(lowwater_loom)]
pub use imp::{mutated, with_mutant};
