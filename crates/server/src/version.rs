//! The server's version.
//!
//! It must begin with a version of memcached that has all commands which clients derive from it.
//! `main.rs` and `protocol.rs` list the differences from that version. `tests/process/logs.rs` has
//! the whole text written out, `src/tests/compatibility/names.rs` its beginning.

/// The reply to `version`. Clients derive from it which rules of memcached apply (memccapable
/// does), so it begins with the version whose replies this server matches.
pub const VERSION: &str = concat!("1.6.18-lowwater-", env!("CARGO_PKG_VERSION"));
