//! Slabs: freed slots are reused, empty chunks return to the system, and no object is freed while a
//! reader uses it.

#[cfg(lowwater_loom)]
mod loom;
#[cfg(not(lowwater_loom))]
mod unit;
