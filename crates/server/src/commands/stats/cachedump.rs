//! `stats cachedump <class> <limit>`: keys with the lengths and the expiry times of their values.
//!
//! memcached shows at most 2 MiB of lines, the youngest values first, and holds a lock meanwhile;
//! here values are visited in no particular order, in parts, and all of them can be shown.
//!
//! A change must ensure that the command gives other connections a turn between two parts: all
//! lines of a large cache take long.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lowwater::cache::Visit;

use crate::protocol::expiry::Expiry;
use crate::protocol::item::{CLASS_MAX, SLAB_CLASS};
use crate::protocol::number::unsigned32;
use crate::session::Session;
use crate::store::{Existing, ListedKey};

/// Answers with a line for each value of the slab class, up to `limit` of them; 0: all values. All
/// values are in [`SLAB_CLASS`]. As in memcached, keys that were sent in base64 are left out; so
/// are keys that a line cannot hold.
pub async fn cachedump(session: &mut Session, arguments: [Option<&[u8]>; 2]) -> io::Result<()> {
    let server = Arc::clone(&session.server);
    if !server.settings.dump {
        session.output.line("CLIENT_ERROR stats cachedump not allowed");
        return Ok(());
    }
    let [Some(class), Some(limit)] = arguments else {
        session.output.line("CLIENT_ERROR bad command line");
        return Ok(());
    };
    let (Some(class), Some(limit)) = (unsigned32(class), unsigned32(limit)) else {
        session.output.line("CLIENT_ERROR bad command line format");
        return Ok(());
    };
    if class > CLASS_MAX {
        session.output.line("CLIENT_ERROR Illegal slab id");
        return Ok(());
    }
    let mut left = if limit == 0 { u64::MAX } else { limit.into() };
    let mut at = Visit::new();
    while class == SLAB_CLASS && left > 0 && !at.is_done() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for ListedKey { key, binary } in server.store.keys(&mut at) {
            if left == 0 {
                break;
            }
            if binary || key.iter().any(|byte| b" \n".contains(byte)) {
                continue;
            }
            let seen = server.store.inspect(&key, |Existing { value, left }| (value.len(), Expiry::from(left)));
            let Some((length, expiry)) = seen else { continue };
            // A Unix time; 0: the value does not expire.
            let expires = expiry.seconds_left().map_or(0, |left| now + left);
            session.output.push(b"ITEM ");
            session.output.push(&key);
            session.output.format(format_args!(" [{length} b; {expires} s]"));
            left -= 1;
            if session.output.is_full() {
                session.flush().await?;
            }
        }
        // Let other connections run, even if the socket's buffer takes all output without waiting.
        tokio::task::yield_now().await;
    }
    session.output.line("END");
    Ok(())
}
