//! Tests of `lowwater_adapters::evict_by` with memory of C libraries: `tests/`, run by
//! `ci/adapters.sh`. The package has no code of its own.
//!
//! A change must ensure that each file of `tests/` has a row in that script.
