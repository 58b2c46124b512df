//! The server's version.

/// The reply to `version`. Clients derive from it which rules of memcached apply (memccapable
/// does), so it begins with the version whose replies this server matches.
pub const VERSION: &str = concat!("1.6.18-lowwater-", env!("CARGO_PKG_VERSION"));
