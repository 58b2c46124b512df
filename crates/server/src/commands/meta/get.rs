//! `mg`: reads a value; with flags, also touches it, creates it on a miss, or wins the right to
//! store it again.
//!
//! A plain read finds the value by one lookup, and records the fetch by another after the reply,
//! which shows the access before. Requests that need the remaining time, or that change something
//! (a win, a new expiry, a value created on a miss), find the value by an update, which is slower
//! and atomic: of all clients that read a stale value at the same time, only one wins, and a `T`
//! sets the expiry of the value that is returned.

use super::echo::{brief, echo, time_left};
use crate::commands::events;
use crate::counters::Counter;
use crate::protocol::expiry::Expiry;
use crate::protocol::meta_command::MetaCommand;
use crate::session::Session;
use crate::store::prefix_stats::Outcome;
use crate::store::{Edit, Existing};
use crate::value::data::Data;
use crate::value::item_flags::ItemFlags;
use crate::value::Value;

/// The result of an `mg` that found or created a value.
struct Found {
    /// The value as it was before a win changed its flags, or as it was created.
    value: Value,
    /// The value's expiry; [`Expiry::Never`] unless the request needs it.
    expiry: Expiry,
    /// The value was created by this request (`N`).
    made: bool,
    /// The client wins the right to store the value again.
    won: bool,
}

/// Executes an `mg`, and answers `HD`, `VA` or `EN`. A miss counts as a get, even with `T`.
pub async fn get(session: &mut Session, meta: MetaCommand<'_>) {
    let full_key = session.namespace.qualify(&meta.key);
    let found = find(session, &full_key, &meta).await;
    let read = found.as_ref().filter(|found| !found.made).map(|found| found.value.len());
    events::fetched(&session.server.store, &session.entry, &full_key, read);
    session.server.prefix_stats.count(&full_key, if found.is_some() { Outcome::Hit } else { Outcome::Miss });
    let Some(found) = found else {
        session.counts.count(Counter::CmdGet);
        session.counts.count(Counter::GetMisses);
        if !meta.options.quiet {
            brief(&mut session.output, "EN", &meta);
        }
        return;
    };
    let touches = meta.options.exptime.is_some();
    session.counts.count(if touches { Counter::CmdTouch } else { Counter::CmdGet });
    session.counts.count(if touches { Counter::TouchHits } else { Counter::GetHits });
    answer(session, &meta, &found);
    if !meta.options.unused {
        session.server.store.mark_fetched(&full_key);
    }
}

/// Finds or creates the value of an `mg`, by a plain lookup if its flags allow that, else by an
/// atomic update.
async fn find(session: &Session, full_key: &[u8], meta: &MetaCommand<'_>) -> Option<Found> {
    let (store, options) = (&session.server.store, &meta.options);
    let value = if options.unused { store.peek(full_key) } else { store.find(full_key) };
    let touch = options.exptime.map(Expiry::of);
    let timed = options.recache.is_some() || touch.is_some() || meta.flags.clone().any(|flag| flag[0] == b't');
    match value {
        None if options.vivify.is_none() => return None,
        Some(value) if !timed && (!value.item_flags().stale || value.item_flags().won) => {
            return Some(Found { value, expiry: Expiry::Never, made: false, won: false });
        }
        _ => {}
    }
    let decide = |there: Option<Existing<'_>>, may_store: bool| match there {
        Some(there) => {
            let found = Found::there(meta, there);
            let found = Found { won: found.won && may_store, ..found };
            let edit = match (found.won, touch) {
                (true, Some(expiry)) => Edit::PutFor(found.value.with_won(), expiry),
                (true, None) => Edit::Change(found.value.with_won()),
                (false, Some(expiry)) => Edit::Touch(expiry),
                (false, None) => Edit::Keep,
            };
            (edit, Some(found))
        }
        None if options.vivify.is_some() && may_store => {
            let item_flags = ItemFlags { won: true, binary: options.binary, ..ItemFlags::default() };
            let value = store.new_value(
                full_key,
                0,
                item_flags,
                options.new_unique,
                &Data::copy(b"", &session.server.piece_pool),
            );
            (Edit::Put(value.clone()), Some(Found { value, expiry: Expiry::Never, made: true, won: true }))
        }
        None => (Edit::Keep, None),
    };
    let lifetime = meta.exptime_of_created().map_or(Expiry::Never, Expiry::of);
    match store.update(full_key, lifetime, |there| decide(there, true)).await {
        Ok(found) => found,
        // No room to record a winner: no client wins, and the reply shows the existing value.
        Err(_) => store.update(full_key, lifetime, |there| decide(there, false)).await.ok().flatten(),
    }
}

/// Writes the reply for a value.
fn answer(session: &mut Session, meta: &MetaCommand<'_>, found: &Found) {
    let Session { output: out, server, .. } = session;
    let Found { value, made, won, .. } = found;
    let length = value.len();
    // With `C`, the bytes are left out if the client has them already.
    let with_bytes = meta.options.value && meta.options.unique != Some(value.unique());
    if with_bytes {
        out.text(format_args!("VA {length}"));
    } else {
        out.push(b"HD");
    }
    let mut expiry = found.expiry;
    for flag in meta.flags.clone() {
        match flag[0] {
            b'T' => expiry = meta.options.exptime.map_or(expiry, Expiry::of),
            b'N' if *made => expiry = meta.options.vivify.map_or(expiry, Expiry::of),
            b's' => out.text(format_args!(" s{length}")),
            b't' => time_left(out, expiry),
            b'c' => out.text(format_args!(" c{}", value.unique())),
            b'f' => out.text(format_args!(" f{}", value.client_flags())),
            b'l' => out.text(format_args!(" l{}", server.store.idle_seconds(value))),
            b'h' => out.text(format_args!(" h{}", u8::from(value.last_access.is_fetched()))),
            _ => echo(out, flag, &meta.key, value.item_flags().binary),
        }
    }
    if value.item_flags().won && !made {
        out.push(b" Z");
    }
    if value.item_flags().stale {
        out.push(b" X");
    }
    if *won {
        out.push(b" W");
    }
    out.line("");
    if with_bytes {
        out.data(value);
    }
}

impl Found {
    /// Returns the existing value, and whether the client wins it: if the value is stale or has
    /// less time left than `R` allows, and no other client has won it.
    fn there(meta: &MetaCommand<'_>, there: Existing<'_>) -> Self {
        let expiry = Expiry::from(there.left);
        let item_flags = there.value.item_flags();
        let won = !item_flags.won && (item_flags.stale || is_due(meta, expiry));
        Self { value: there.value.clone(), expiry, made: false, won }
    }
}

/// Returns whether less time is left than `R` allows. A `T` before the `R` counts already.
fn is_due(meta: &MetaCommand<'_>, mut expiry: Expiry) -> bool {
    for flag in meta.flags.clone() {
        match flag[0] {
            b'T' => expiry = meta.options.exptime.map_or(expiry, Expiry::of),
            b'R' => {
                let least = meta.options.recache.and_then(|exptime| Expiry::of(exptime).seconds_left());
                return expiry.seconds_left().zip(least).is_some_and(|(left, least)| left < least);
            }
            _ => {}
        }
    }
    false
}
