//! The command `ma`: `incr` and `decr` with a CAS number to compare, a value created on a miss, and
//! selectable reply fields.
//!
//! `commands/arithmetic.rs` computes the new number; this file adds the compare, the creation and
//! the reply. A change must ensure that compare, creation, store and a new expiry (flag `T`) are
//! one update of the store.

use super::echo::{brief, echo, time_left};
use crate::commands::arithmetic::{calculate, Delta, NO_MEMORY, NO_NUMBER};
use crate::commands::events;
use crate::commands::store::StoreOutcome;
use crate::net::output::Output;
use crate::protocol::command::StoreVerb;
use crate::protocol::expiry::Expiry;
use crate::protocol::meta_command::{MetaCommand, MetaOptions};
use crate::session::Session;
use crate::store::{Edit, Existing, OutOfMemory};
use crate::value::data::Data;
use crate::value::item_flags::ItemFlags;
use crate::value::Value;

/// The outcome of a change of a number.
pub(in crate::commands) enum MetaArithmeticOutcome {
    /// No value, and none is to be created.
    Missing,
    /// The CAS number differs.
    Exists,
    /// The value is not a number.
    NoNumber,
    Done(Done),
}

/// A number that was changed or created.
pub(in crate::commands) struct Done {
    pub value: Value,
    pub number: u64,
    /// The expiry before flags `T` and `N` are applied.
    expiry: Expiry,
    /// True if the value was created.
    made: bool,
}

impl Done {
    /// Publishes the store of a number that was created, if clients watch stores.
    pub fn publish_if_made(&self, session: &Session, key: &[u8], expiry: Expiry) {
        if self.made {
            let full_key = session.namespace.qualify(key);
            let words = [StoreOutcome::Stored.word(), StoreVerb::Add.name()];
            events::stored(&session.server.store, &session.entry, &full_key, words, expiry, self.value.len());
        }
    }
}

/// Executes `ma`, and answers `HD`, `VA`, `NF`, `EX`, or an error.
pub async fn arithmetic(session: &mut Session, meta: MetaCommand<'_>) {
    let lifetime = meta.exptime_of_created().map_or(Expiry::Never, Expiry::of);
    match change(session, &meta.key, &meta.options, lifetime).await {
        Ok(MetaArithmeticOutcome::Done(done)) => {
            // As in memcached: without the time that the number gets from `T` or `N`.
            done.publish_if_made(session, &meta.key, Expiry::Never);
            answer(session, &meta, &done);
        }
        Ok(MetaArithmeticOutcome::Missing) => brief(&mut session.output, "NF", &meta),
        Ok(MetaArithmeticOutcome::Exists) => brief(&mut session.output, "EX", &meta),
        Ok(MetaArithmeticOutcome::NoNumber) => session.output.line(NO_NUMBER),
        Err(_) => session.output.line(NO_MEMORY),
    }
}

/// Changes or creates the number of `key`, and counts the outcome. A number that is created expires
/// at `lifetime`.
///
/// # Errors
///
/// There is no memory; the value under `key` is unchanged.
pub(in crate::commands) async fn change(
    session: &mut Session,
    key: &[u8],
    options: &MetaOptions,
    lifetime: Expiry,
) -> Result<MetaArithmeticOutcome, OutOfMemory> {
    let server = &session.server;
    let full_key = session.namespace.qualify(key);
    let increment = !matches!(options.mode, Some(b'D' | b'-'));
    let delta = Delta { increment, amount: options.delta.unwrap_or(1) };
    let renewed = options.exptime.map(Expiry::of);
    let decide = |there: Option<Existing<'_>>| {
        let Some(Existing { value: old, left }) = there else {
            if options.vivify.is_none() {
                return (Edit::Keep, MetaArithmeticOutcome::Missing);
            }
            let item_flags = ItemFlags { binary: options.binary, ..ItemFlags::default() };
            let text = options.initial.to_string();
            let data = Data::copy(text.as_bytes(), &server.piece_pool);
            let value = server.store.new_value(&full_key, 0, item_flags, options.new_unique, &data);
            let done = Done { value: value.clone(), number: options.initial, expiry: Expiry::Never, made: true };
            return (Edit::Put(value), MetaArithmeticOutcome::Done(done));
        };
        // As in memcached: a request with number 0 compares nothing, and an empty value is reported
        // as no number even if its CAS number differs.
        if options.unique.is_some_and(|unique| unique != 0 && unique != old.unique()) && old.len() > 0 {
            return (Edit::Keep, MetaArithmeticOutcome::Exists);
        }
        match calculate(old, delta, options.new_unique, server) {
            None => (Edit::Keep, MetaArithmeticOutcome::NoNumber),
            Some((value, number)) => {
                let done = Done { value: value.clone(), number, expiry: left.into(), made: false };
                let edit = match renewed {
                    Some(expiry) => Edit::PutFor(value, expiry),
                    None => Edit::Change(value),
                };
                (edit, MetaArithmeticOutcome::Done(done))
            }
        }
    };
    let outcome = server.store.update(&full_key, lifetime, decide).await?;
    let (hits, misses) = delta.counters();
    match &outcome {
        MetaArithmeticOutcome::Done(done) if !done.made => session.counts.count(hits),
        MetaArithmeticOutcome::Missing => session.counts.count(misses),
        _ => {}
    }
    Ok(outcome)
}

/// Writes the reply for a number that was changed or created, unless the client wants none. The
/// flags count in their order: `t` before `T` reports the old expiry.
fn answer(session: &mut Session, meta: &MetaCommand<'_>, done: &Done) {
    let silent = meta.options.quiet;
    let mut nowhere = Output::default();
    let out = if silent { &mut nowhere } else { &mut session.output };
    let text = done.number.to_string();
    if meta.options.value {
        out.text(format_args!("VA {}", text.len()));
    } else {
        out.push(b"HD");
    }
    let mut expiry = done.expiry;
    for flag in meta.flags.clone() {
        match flag[0] {
            b'T' => expiry = meta.options.exptime.map_or(expiry, Expiry::of),
            b'N' if done.made => expiry = meta.options.vivify.map_or(expiry, Expiry::of),
            b't' => time_left(out, expiry),
            b'c' => out.text(format_args!(" c{}", done.value.unique())),
            _ => echo(out, flag, &meta.key, meta.options.binary),
        }
    }
    out.line("");
    if meta.options.value {
        out.stored_number(done.number);
    }
}
