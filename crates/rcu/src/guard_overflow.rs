//! The abort when guards can no longer be counted.
//!
//! A count that wrapped would let a reader out while guards exist, which is a use after free; so an
//! overflow ends the process.
//!
//! A change must ensure that no count of guards can wrap.

/// Aborts, as `Arc` does, if there were more than `isize::MAX` guards before this one: guards were
/// leaked, and a count that wraps would free memory that readers still use.
#[inline]
pub(crate) fn check_guards(guards: usize) {
    if guards > isize::MAX as usize {
        too_many_guards();
    }
}

#[cold]
extern "C" fn too_many_guards() -> ! {
    // A panic that would unwind out of an `extern "C"` function aborts, also without `std`.
    panic!("guards were leaked until they could not be counted");
}
