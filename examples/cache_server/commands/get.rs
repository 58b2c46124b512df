//! `get`, `gets`, `gat`, `gats`: any number of keys, each hit a `VALUE`, then `END`.

use std::io;

use crate::connection::Session;
use crate::expiry::Expiry;
use crate::parse::Keys;
use crate::prefix::Deed;
use crate::stats::Counter;
use crate::value::Value;

/// Answers with the values; `unique` shows their numbers, `touch` gives them a new exptime.
pub async fn get(session: &mut Session, keys: Keys<'_>, unique: bool, touch: Option<i64>) -> io::Result<()> {
    let touch = touch.map(Expiry::of);
    for key in keys {
        let value = match touch {
            None => read(session, key),
            Some(expiry) => read_and_touch(session, key, expiry),
        };
        if let Some(value) = value {
            session.output.value(key, &value, unique);
        }
        if session.output.is_full() {
            session.flush().await?;
        }
    }
    session.output.line("END");
    Ok(())
}

fn read(session: &mut Session, key: &[u8]) -> Option<Value> {
    let name = session.scope.name(key);
    let value = session.server.store.get(&name);
    session.server.prefixes.count(&name, if value.is_some() { Deed::Hit } else { Deed::Miss });
    session.tally.count(Counter::CmdGet);
    session.tally.count(if value.is_some() { Counter::GetHits } else { Counter::GetMisses });
    value
}

fn read_and_touch(session: &mut Session, key: &[u8], expiry: Expiry) -> Option<Value> {
    let (store, name) = (&session.server.store, session.scope.name(key));
    // Read first: the new time may be over already.
    let value = store.get(&name).filter(|_| store.expire(&name, expiry));
    session.server.prefixes.count(&name, if value.is_some() { Deed::Hit } else { Deed::Miss });
    session.tally.count(Counter::CmdTouch);
    session.tally.count(if value.is_some() { Counter::TouchHits } else { Counter::TouchMisses });
    value
}
