//! Settings: the command line, and the files that it names.

pub mod args;
mod extended;
pub mod limits;
pub mod listen_address;
mod memcached_flags;
pub mod users;

use std::path::PathBuf;
use std::time::Duration;

use lowwater::ByteSize;

use limits::Limits;
use listen_address::ListenAddress;
use users::Users;

/// The settings of a server.
#[derive(Debug)]
pub struct Settings {
    pub listen: Vec<ListenAddress>,
    /// `host:port` for HTTP, if it is enabled.
    pub http: Option<String>,
    /// Users that may log in; `None`: no login is required.
    pub users: Option<Users>,
    /// Evict values when the memory is full.
    pub evict: bool,
    /// Reduce memory use when the machine is short of memory.
    pub pressure: bool,
    pub budget: ByteSize,
    pub threads: usize,
    pub connections_max: u64,
    pub verbosity: u8,
    pub item_bytes_max: usize,
    pub delimiter: u8,
    pub limits: Vec<(String, Limits)>,
    pub files: Files,
    /// Answer `flush_all`; otherwise refuse it.
    pub flush: bool,
    /// Close connections that send nothing for this time.
    pub idle_timeout: Option<Duration>,
    /// Run in the background, in a session of its own.
    pub background: bool,
    /// The user to run as.
    pub user: Option<String>,
    /// The file for the process's id.
    pub pid_file: Option<PathBuf>,
    /// The given flags of memcached that have no effect here.
    pub without_effect: Vec<&'static str>,
}

/// The files that the settings were read from, and that are read again on SIGHUP.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The tenants' limits (`--config`).
    pub limits: Option<PathBuf>,
    /// The users (`-Y`).
    pub users: Option<PathBuf>,
}
