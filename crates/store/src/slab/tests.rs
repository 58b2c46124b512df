//! Slabs: what is given back is used again, what is empty goes back to the system, and nothing goes under a reader.

#[cfg(lowwater_loom)]
mod loom;
#[cfg(not(lowwater_loom))]
mod unit;
