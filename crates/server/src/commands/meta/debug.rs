//! `me`: metadata of a value.
//!
//! The fields and their order are memcached's, because tools parse them.
//!
//! A change must keep both.

use crate::counters::Counter;
use crate::protocol::base64;
use crate::protocol::expiry::Expiry;
use crate::protocol::item::{is_shown_in_base64, item_bytes, SLAB_CLASS};
use crate::session::Session;
use crate::store::Existing;

/// Answers with one line of metadata, or `EN`. Does not count as a use of the value.
pub fn debug(session: &mut Session, key: &[u8]) {
    let Session { output: out, server, counts, .. } = session;
    let full_key = session.namespace.qualify(key);
    counts.count(Counter::CmdMeta);
    let found = server.store.inspect(&full_key, |Existing { value, left }| (value.clone(), Expiry::from(left)));
    let Some((value, expiry)) = found else { return out.line("EN") };
    let mut shown = Vec::new();
    match is_shown_in_base64(key, value.item_flags().binary) {
        true => base64::encode(key, &mut shown),
        false => shown.extend(key),
    }
    out.push(b"ME ");
    out.push(&shown);
    // The seconds left; memcached 1.6.18 shows them as a negative number.
    let exp = expiry.seconds_left().map_or(-1, |left| left as i64);
    out.format(format_args!(
        " exp={exp} la={} cas={} fetch={} cls={SLAB_CLASS} size={}",
        server.store.idle_seconds(&value),
        value.unique(),
        if value.last_access.is_fetched() { "yes" } else { "no" },
        item_bytes(key, value.client_flags(), value.len()),
    ));
}
