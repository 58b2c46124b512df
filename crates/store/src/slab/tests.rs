//! Slabs: freed slots are reused, empty chunks return to the system, and no object is freed while a
//! reader uses it.
//!
//! `unit` has one property for each test, `compaction` those of compaction, with the objects of
//! `thing`, `shared_chunks` those of chunks that slabs share, `transfer` those of free slots that
//! pass from thread to thread; `loom` checks small models in every order of the threads' steps. A
//! change must ensure that a property that depends on this order is checked in `loom`.

#[cfg(not(any(lowwater_loom, miri)))]
mod compaction;
#[cfg(lowwater_loom)]
mod loom;
#[cfg(not(lowwater_loom))]
mod shared_chunks;
#[cfg(not(lowwater_loom))]
mod thing;
#[cfg(not(any(lowwater_loom, miri)))]
mod transfer;
#[cfg(not(lowwater_loom))]
mod unit;
