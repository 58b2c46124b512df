//! The server's version.

/// What `version` answers. Clients read from it which memcached's rules they may expect
/// (memccapable does), so it begins with the version whose replies ours equal.
pub const VERSION: &str = concat!("1.6.18-lowwater-", env!("CARGO_PKG_VERSION"));
