//! The banner: the addresses, limits and an example command, printed to stdout at startup.
//!
//! Scripts read the addresses from it, also with port 0; `tests/server` and `ci/page.sh` do. With
//! `-d` the first line tells the caller that the server serves (`start.rs`).
//!
//! A change of a line's form breaks such scripts.

use std::io::Write;

use crate::server::Server;
use crate::settings::listen_address::Endpoint;

/// Prints the banner.
pub fn print(server: &Server) {
    let settings = &server.settings;
    let mut endpoints: Vec<String> = server.addresses.iter().map(ToString::to_string).collect();
    let mut reach = server.addresses.first().map(|first| format!("{} {}", first.ip(), first.port()));
    for listen in &settings.listen {
        if let (Endpoint::Unix { path, .. }, true) = (&listen.endpoint, server.addresses.is_empty()) {
            endpoints.push(path.display().to_string());
            reach.get_or_insert_with(|| format!("-U {}", path.display()));
        }
    }
    let (delimiter, limited) = (char::from(settings.delimiter), settings.limits.len());
    let text = format!(
        "lowwater-server {version}, memcached protocol on {endpoints}\n\
         memory   {memory} MiB for all tenants, items up to {item} bytes; {connections} connections, {threads} threads\n\
         tenants  a key's tenant is the part before its first '{delimiter}', else \"default\"; {limited} with limits\n\
         try      printf 'set team{delimiter}greeting 0 0 5\\r\\nhello\\r\\nget team{delimiter}greeting\\r\\nstats tenants\\r\\nquit\\r\\n' | nc {reach}\n{http}",
        http = server.http.map_or(String::new(), |http| format!("http     http://{http}/ and {http}/metrics\n")),
        version = env!("CARGO_PKG_VERSION"),
        endpoints = endpoints.join(" "),
        memory = settings.budget.get() >> 20,
        item = settings.item_bytes_max,
        connections = settings.connections_max,
        threads = settings.threads,
        reach = reach.unwrap_or_default(),
    );
    let mut stdout = std::io::stdout();
    // A closed stdout is no reason not to serve.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
