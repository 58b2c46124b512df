//! SIGHUP: reads the tenants' limits (`--config`), the users (`-Y`), and the certificate, key and
//! authorities (`ssl_ca_cert`) of TLS again, while clients are served. The cache keeps its values,
//! and open connections keep their tenants and their encryption.
//!
//! Either all files are valid and take effect, or no setting changes and the log has the reason. A
//! tenant whose line was removed gets no limits; a tenant that never had a line keeps those of
//! `tenant set`. A file should be replaced by a rename: a reload beside a write may read a part of
//! it.
//!
//! A change must ensure that all files are read before the first of them takes effect.

use std::collections::HashSet;
use std::sync::Arc;

#[cfg(unix)]
use tokio::signal::unix::{signal, Signal, SignalKind};

use crate::server::Server;
use crate::settings::limits::{self, Limits};
use crate::settings::users::Users;
use crate::store::tenant::CONFIGURED_MAX;

/// The received SIGHUPs. Before this is created, SIGHUP ends the process.
#[derive(Debug)]
pub struct Hangups {
    #[cfg(unix)]
    signal: Signal,
}

impl Hangups {
    /// Installs the handler of the signal.
    ///
    /// # Errors
    ///
    /// A sentence, if the signal cannot be waited for.
    #[cfg(unix)]
    pub fn new() -> Result<Self, String> {
        let signal = signal(SignalKind::hangup()).map_err(|why| format!("cannot wait for signals: {why}"))?;
        Ok(Self { signal })
    }

    /// Elsewhere, there is no such signal.
    #[cfg(not(unix))]
    pub fn new() -> Result<Self, String> {
        Ok(Self {})
    }
}

/// Reloads after each SIGHUP, and never resolves.
#[cfg(unix)]
pub async fn on_hangup(mut hangups: Hangups, server: Arc<Server>) {
    while hangups.signal.recv().await.is_some() {
        let server = Arc::clone(&server);
        // On a blocking thread: the files may be large, or on a slow file system. An error means
        // that the server is shutting down.
        let _ = tokio::task::spawn_blocking(move || reload_and_log(&server)).await;
    }
}

/// Where there are no unix signals, nothing is reloaded.
#[cfg(not(unix))]
pub async fn on_hangup(_hangups: Hangups, _server: Arc<Server>) {}

#[cfg(unix)]
fn reload_and_log(server: &Server) {
    match reload(server) {
        Ok(what) => server.log(0, format_args!("SIGHUP: {what}")),
        Err(why) => server.log(0, format_args!("SIGHUP: nothing is changed: {why}")),
    }
}

/// Reads the files of the settings again, and returns what was read.
///
/// # Errors
///
/// A sentence with the file, the line and the reason; nothing is changed.
pub fn reload(server: &Server) -> Result<String, String> {
    let (settings, files) = (&server.settings, &server.settings.files);
    let users = files.users.as_deref().map(|path| Users::read(path, settings.delimiter)).transpose()?;
    let given = files.limits.as_deref().map(|path| limits::read(path, settings.delimiter)).transpose();
    let given = given.map_err(|why| why.to_string())?;
    let tls = server.tls.as_ref().map(|tls| tls.read_again().map(|new| (tls, new))).transpose()?;
    if let Some(users) = &users {
        // First, as it may fail. A tenant that exists has no effect without its user.
        server.store.create_tenants(users.names())?;
    }
    let without_effect = given.as_ref().and_then(|given| settings.limits_without_effect(given, users.as_ref()));
    let mut read = Vec::new();
    if let Some(given) = given {
        // Held until the limits are set, so that concurrent calls set them one after the other.
        let mut limited = server.limited_tenants.lock();
        let names: Vec<String> = given.iter().map(|(name, _)| name.clone()).collect();
        let listed: HashSet<&String> = names.iter().collect();
        let removed = limited.iter().filter(|name| !listed.contains(name));
        let removed: Vec<_> = removed.map(|name| (name.clone(), Limits::default())).collect();
        read.push(format!("limits of {} tenants", names.len()));
        server.store.set_limits(&[given, removed].concat(), CONFIGURED_MAX)?;
        *limited = names;
    }
    if let Some(users) = users {
        read.push("users".to_owned());
        *server.users.write() = Some(users);
    }
    if let Some((tls, new)) = tls {
        read.push("the certificate".to_owned());
        tls.replace(new);
    }
    if read.is_empty() {
        return Ok("there is no file to read again (--config, -Y, -Z)".to_owned());
    }
    let without_effect = without_effect.map_or_else(String::new, |what| format!("; {what}"));
    Ok(format!("read {}{without_effect}", read.join(" and ")))
}
