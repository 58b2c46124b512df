//! `stats settings`: the settings in memcached's fields.
//!
//! A line of memcached's that has no meaning here is left out.
//!
//! A new flag that memcached also has gets its line here, and in `src/tests/compatibility/names.rs`
//! (`SETTINGS`), which a test compares.

use crate::net::output::Output;
use crate::server::Server;

/// Adds the lines of `stats settings`.
pub fn settings(server: &Server, out: &mut Output) {
    let settings = &server.settings;
    let addresses: Vec<String> = server.addresses.iter().map(ToString::to_string).collect();
    out.stat("maxbytes", server.store.asked_budget().get());
    out.stat("maxconns", settings.connections_max);
    out.stat("tcpport", server.addresses.first().map_or(0, |address| address.port()));
    out.stat("udpport", 0);
    out.stat("inter", addresses.join(","));
    out.stat("verbosity", server.verbosity());
    out.stat("evictions", if settings.evict { "on" } else { "off" });
    out.stat("shutdown_command", if settings.shutdown { "yes" } else { "no" });
    out.stat("num_threads", settings.threads);
    out.stat("stat_key_prefix", char::from(settings.delimiter));
    out.stat("detail_enabled", if server.prefix_stats.is_on() { "yes" } else { "no" });
    out.stat("cas_enabled", "yes");
    out.stat("binding_protocol", settings.protocol.name());
    out.stat("auth_enabled_sasl", if settings.users.is_some() { "yes" } else { "no" });
    out.stat("auth_enabled_ascii", if settings.users.is_some() { "yes" } else { "no" });
    out.stat("item_size_max", settings.item_bytes_max);
    out.stat("maxconns_fast", "yes");
    out.stat("flush_enabled", if settings.flush { "yes" } else { "no" });
    out.stat("idle_timeout", settings.idle_timeout.map_or(0, |time| time.as_secs()));
    out.stat("dump_enabled", if settings.dump { "yes" } else { "no" });
    out.stat("ssl_enabled", if settings.tls.is_some() { "yes" } else { "no" });
    out.end_stats();
}
