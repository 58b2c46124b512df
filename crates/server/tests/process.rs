//! The server as a process: file descriptors, signals, and the flags of its start.

#![cfg(target_os = "linux")]

#[path = "process/descriptors.rs"]
mod descriptors;
mod server;
#[path = "process/signals.rs"]
mod signals;
#[path = "process/start.rs"]
mod start;
