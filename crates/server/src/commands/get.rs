//! `get`, `gets`, `gat`, `gats`: any number of keys, each hit a `VALUE`, then `END`.

use std::io;

use crate::counters::Counter;
use crate::protocol::expiry::Expiry;
use crate::protocol::words::Words;
use crate::session::Session;
use crate::store::prefix_stats::Deed;
use crate::value::Value;

/// Answers with the values; `unique` shows their numbers, `touch` gives them a new exptime.
pub async fn get(session: &mut Session, keys: Words<'_>, unique: bool, touch: Option<i64>) -> io::Result<()> {
    let touch = touch.map(Expiry::of);
    for key in keys {
        match touch {
            None => read(session, key, unique),
            Some(expiry) => read_and_touch(session, key, unique, expiry),
        }
        if session.output.is_full() {
            session.flush().await?;
        }
    }
    session.output.line("END");
    Ok(())
}

fn read(session: &mut Session, key: &[u8], unique: bool) {
    let Session { output, server, scope, tally, .. } = session;
    let name = scope.name(key);
    let is_hit = server.store.read(&name, |value| output.value(key, value, unique)).is_some();
    server.prefixes.count(&name, if is_hit { Deed::Hit } else { Deed::Miss });
    tally.count(Counter::CmdGet);
    tally.count(if is_hit { Counter::GetHits } else { Counter::GetMisses });
}

fn read_and_touch(session: &mut Session, key: &[u8], unique: bool, expiry: Expiry) {
    let (store, name) = (&session.server.store, session.scope.name(key));
    // Read first: the new time may be over already.
    let value = store.read(&name, Value::clone).filter(|_| store.expire(&name, expiry));
    session.server.prefixes.count(&name, if value.is_some() { Deed::Hit } else { Deed::Miss });
    session.tally.count(Counter::CmdTouch);
    session.tally.count(if value.is_some() { Counter::TouchHits } else { Counter::TouchMisses });
    if let Some(value) = value {
        session.output.value(key, &value, unique);
    }
}
