//! The server as a process: file descriptors, logs, sockets of a service manager, saved values,
//! signals, memory, and the flags of its start.
//!
//! A change must ensure that a test belongs here only if it cannot run inside the test process.

#![cfg(target_os = "linux")]

#[path = "process/descriptors.rs"]
mod descriptors;
#[path = "process/logs.rs"]
mod logs;
#[path = "process/managed.rs"]
mod managed;
#[path = "process/memory.rs"]
mod memory;
#[path = "process/saved.rs"]
mod saved;
mod server;
#[path = "process/signals.rs"]
mod signals;
#[path = "process/start.rs"]
mod start;
