//! Settings: the command line, and the files that it names.
//!
//! Both are read at the start, where each error names the flag or the file and line, and ends the
//! process. SIGHUP reads the files again (`reload.rs`), not the command line.
//!
//! A change must ensure that a wrong setting is an error before the first listener is open.

pub mod args;
mod extended;
pub mod limits;
pub mod listen_address;
pub mod manual;
mod memcached_flags;
pub mod protocol;
pub mod tls;
pub mod traffic_limits;
pub mod users;

use std::path::PathBuf;
use std::time::Duration;

use lowwater::ByteSize;

use limits::{group_name, listed_name, Limits, DEFAULT_TENANT};
use listen_address::ListenAddress;
use protocol::Protocol;
use tls::TlsSettings;
use traffic_limits::TrafficLimits;
use users::Users;

/// The settings of a server.
#[derive(Debug)]
pub struct Settings {
    pub listen: Vec<ListenAddress>,
    /// `host:port` for HTTP, if it is enabled.
    pub http: Option<String>,
    /// The most tenants that `/metrics` lists; 0: none.
    pub metrics_tenants: usize,
    /// The protocols of clients (`-B`).
    pub protocol: Protocol,
    /// Users that may log in; `None`: no login is required.
    pub users: Option<Users>,
    /// Evict values when the memory is full.
    pub evict: bool,
    /// Reduce memory use when the machine is short of memory.
    pub pressure: bool,
    /// The memory of all tenants together (`-m`).
    pub budget: ByteSize,
    /// The number of worker threads.
    pub threads: usize,
    pub connections_max: u64,
    /// The number of `-v`.
    pub verbosity: u8,
    /// The maximum bytes of an item, its key included.
    pub item_bytes_max: usize,
    /// The byte that ends the tenant's name in a key.
    pub delimiter: u8,
    /// The limits of tenants, by name.
    pub limits: Vec<(String, Limits)>,
    pub files: Files,
    /// Answer `flush_all`; otherwise refuse it.
    pub flush: bool,
    /// Answer `shutdown`; otherwise refuse it.
    pub shutdown: bool,
    /// Answer commands that list keys; otherwise refuse them.
    pub dump: bool,
    /// Answer `watch`; otherwise refuse it.
    pub watch: bool,
    /// The certificate and key of TLS, if it is on.
    pub tls: Option<TlsSettings>,
    /// Close connections that send nothing for this time.
    pub idle_timeout: Option<Duration>,
    /// Run in the background, in a session of its own.
    pub background: bool,
    /// The user to run as.
    pub user: Option<String>,
    /// The file for the process's id.
    pub pid_file: Option<PathBuf>,
    /// The file that keeps the values while the server does not run.
    pub save_file: Option<PathBuf>,
    /// The given flags of memcached that have no effect here.
    pub without_effect: Vec<&'static str>,
}

impl Settings {
    /// Returns the names of the tenants to which connections belong by their listener or login.
    pub fn tenants_with_connections(&self) -> impl Iterator<Item = &str> {
        let tags = self.listen.iter().filter_map(|address| address.tenant.as_deref());
        tags.chain(self.users.iter().flat_map(Users::names))
    }

    /// Returns a sentence with the tenants that have traffic limits, to which no connection can
    /// belong: no user has the tenant's name, and no listening address is restricted to the tenant.
    /// `None` if there is no such tenant.
    pub fn limits_without_effect(&self, limits: &[(String, Limits)], users: Option<&Users>) -> Option<String> {
        let has_connections = |name: &str| {
            let is_tag = |listen: &ListenAddress| listen.tenant.as_deref() == Some(name);
            name == DEFAULT_TENANT || users.is_some_and(|users| users.has(name)) || self.listen.iter().any(is_tag)
        };
        let limited = limits.iter().filter(|(_, limits)| limits.traffic != TrafficLimits::default());
        let unreached = limited.filter(|(name, _)| !has_connections(name));
        let names: Vec<_> = unreached.map(|(name, _)| listed_name(&group_name(name.as_bytes()))).collect();
        (!names.is_empty()).then(|| {
            format!(
                "requests, bandwidth, connections and deny have no effect for {}: no user (-Y) or address (-l tag_NAME_:) has this tenant",
                names.join(", ")
            )
        })
    }
}

/// The files that the settings were read from, and that are read again on SIGHUP.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The tenants' limits (`--config`).
    pub limits: Option<PathBuf>,
    /// The users (`-Y`).
    pub users: Option<PathBuf>,
}
