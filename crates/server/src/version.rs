//! The server's version.
//!
//! It must begin with a version of memcached that has all commands which clients derive from it.

/// The reply to `version`. Clients derive from it which rules of memcached apply (memccapable
/// does), so it begins with the version whose replies this server matches.
pub const VERSION: &str = concat!("1.6.18-lowwater-", env!("CARGO_PKG_VERSION"));
