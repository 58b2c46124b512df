//! `lru_crawler`: visits all values in small batches, while other clients are served.
//!
//! Output is written batch by batch, so a dump of millions of keys needs no memory for them and
//! delays no other client. A change must ensure that a listed key never breaks its line.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lowwater::cache::Visit;

use crate::protocol::base64;
use crate::protocol::command::CrawlAction;
use crate::protocol::expiry::Expiry;
use crate::protocol::item::{is_shown_in_base64, item_bytes, SLAB_CLASS};
use crate::protocol::uri::uri_encoded;
use crate::session::Session;
use crate::store::{Existing, ListedKey};
use crate::value::Value;

/// Writes a line for each value, or removes expired values; nothing unless `everything`: the
/// command selects all values or none, as there is one slab class. A value that is present during
/// the whole crawl is shown exactly once.
pub async fn crawl(session: &mut Session, crawl: CrawlAction, everything: bool) -> io::Result<()> {
    let server = std::sync::Arc::clone(&session.server);
    if crawl == CrawlAction::Expire {
        if everything {
            server.reap_expired().await;
        }
        session.output.line("OK");
        return Ok(());
    }
    if !server.settings.dump {
        let name = if crawl == CrawlAction::Mgdump { "key dump" } else { "metadump" };
        session.output.format(format_args!("ERROR {name} not allowed"));
        return Ok(());
    }
    session.output.line("OK");
    let mut at = Visit::new();
    while everything && !at.is_done() {
        for ListedKey { key, binary } in server.store.keys(&mut at) {
            match crawl {
                CrawlAction::Mgdump => session.output.push(&mg_line(&key, binary)),
                _ => {
                    let seen =
                        server.store.inspect(&key, |Existing { value, left }| (value.clone(), Expiry::from(left)));
                    if let Some((value, expiry)) = seen {
                        let line = metadump_line(&key, &value, expiry, server.store.idle_seconds(&value));
                        session.output.push(line.as_bytes());
                    }
                }
            }
            if session.output.is_full() {
                session.flush().await?;
            }
        }
        // Let other connections run, even if the socket's buffer takes all output without waiting.
        tokio::task::yield_now().await;
    }
    session.output.line(if crawl == CrawlAction::Mgdump { "EN" } else { "END" });
    Ok(())
}

/// Returns the `mg` command that reads `key`.
fn mg_line(key: &[u8], binary: bool) -> Vec<u8> {
    let mut line = b"mg ".to_vec();
    if is_shown_in_base64(key, binary) {
        base64::encode(key, &mut line);
        line.extend(b" b");
    } else {
        line.extend(key);
    }
    line.extend(b"\r\n");
    line
}

/// Returns memcached's metadump line for a value, which has a space at its end. Times are Unix
/// times; `exp` is -1 for a value that does not expire.
fn metadump_line(key: &[u8], value: &Value, expiry: Expiry, idle_seconds: u32) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let expires = expiry.seconds_left().map_or(-1, |left| (now.as_secs() + left) as i64);
    format!(
        "key={} exp={expires} la={} cas={} fetch={} cls={SLAB_CLASS} size={} flags={} \n",
        uri_encoded(key),
        now.saturating_sub(Duration::from_secs(idle_seconds.into())).as_secs(),
        value.unique(),
        if value.last_access.is_fetched() { "yes" } else { "no" },
        item_bytes(key, value.client_flags(), value.len()),
        value.client_flags(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_key_is_always_one_line() {
        for (key, binary, line) in [
            (&b"shop:k\xff"[..], false, &b"mg shop:k\xff\r\n"[..]),
            (b"foo", true, b"mg Zm9v b\r\n"),
            // A tenant of this name can be created on the command line.
            (b"my shop:k", false, b"mg bXkgc2hvcDpr b\r\n"),
            (b"a\r\nb", false, b"mg YQ0KYg== b\r\n"),
        ] {
            assert_eq!(mg_line(key, binary).escape_ascii().to_string(), line.escape_ascii().to_string());
        }
    }
}
