//! `get`, `gets`, `gat`, `gats`: one `VALUE` for each key that is found, then `END`.
//!
//! The command that matters most for throughput: one lookup, no copy of a long value, counters in
//! the session.
//!
//! A change must be measured with `examples/cache_bench.rs`.

use std::io;

use super::events;
use crate::counters::Counter;
use crate::net::output::Output;
use crate::protocol::expiry::Expiry;
use crate::protocol::words::Words;
use crate::session::Session;
use crate::store::prefix_stats::Outcome;
use crate::value::Value;

/// Keys of one command after which other connections of the thread run: a line may have 130,000.
const KEYS_PER_TURN: usize = 512;

/// Answers a plain `get` of one key. The caller writes the replies when the output is full.
pub fn get(session: &mut Session, key: &[u8]) {
    read(session, key, |output, value| output.value(key, value, false));
    session.output.ended_line(b"END\r\n");
}

/// Answers with the values. `unique` adds their unique numbers, `touch` gives them a new exptime.
pub async fn get_all(session: &mut Session, keys: Words<'_>, unique: bool, touch: Option<i64>) -> io::Result<()> {
    let touch = touch.map(Expiry::of);
    for (at, key) in keys.enumerate() {
        if at % KEYS_PER_TURN == KEYS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
        match touch {
            None => {
                read(session, key, |output, value| output.value(key, value, unique));
            }
            Some(expiry) => {
                if let Some(value) = read_and_touch(session, key, expiry) {
                    session.output.value(key, &value, unique);
                }
            }
        }
        if session.output.is_full() {
            session.flush().await?;
        }
    }
    session.output.line("END");
    Ok(())
}

/// Reads the value of `key`, counts the read, and returns whether there is a value: `write` adds it
/// to the output.
#[inline]
pub(super) fn read(session: &mut Session, key: &[u8], write: impl FnOnce(&mut Output, &Value)) -> bool {
    let Session { output, server, namespace, counts, entry, .. } = session;
    let full_key = namespace.qualify(key);
    let length = server.store.read(&full_key, |value| {
        write(output, value);
        value.len()
    });
    let is_hit = length.is_some();
    events::fetched(&server.store, entry, &full_key, length);
    server.prefix_stats.count(&full_key, if is_hit { Outcome::Hit } else { Outcome::Miss });
    counts.count(Counter::CmdGet);
    counts.count(if is_hit { Counter::GetHits } else { Counter::GetMisses });
    is_hit
}

/// Reads the value of `key` and sets its expiry, and counts both as a touch.
pub(super) fn read_and_touch(session: &mut Session, key: &[u8], expiry: Expiry) -> Option<Value> {
    let (store, full_key) = (&session.server.store, session.namespace.qualify(key));
    let value = store.read_and_touch(&full_key, expiry);
    events::fetched(store, &session.entry, &full_key, value.as_ref().map(Value::len));
    session.server.prefix_stats.count(&full_key, if value.is_some() { Outcome::Hit } else { Outcome::Miss });
    session.counts.count(Counter::CmdTouch);
    session.counts.count(if value.is_some() { Counter::TouchHits } else { Counter::TouchMisses });
    value
}
