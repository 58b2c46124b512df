//! `incr` and `decr`: on values that are numbers in text.
//!
//! `incr` wraps at 2^64, `decr` stops at 0. A result shorter than the value before it is filled with spaces to the old length,
//! as memcached does (it writes in place): `decr` of `"10"` by 1 answers `9` and leaves `"9 "`.

use std::sync::Arc;

use super::answer;
use crate::connection::Session;
use crate::expiry::Expiry;
use crate::parse::number;
use crate::stats::Counter;
use crate::store::Edit;
use crate::value::{Data, Value};

enum Outcome {
    Missing,
    NoNumber,
    Done(u64),
}

/// Answers the new number, `NOT_FOUND`, or an error.
pub async fn arithmetic(session: &mut Session, key: &[u8], increment: bool, delta: u64, noreply: bool) {
    let decide = |value: Option<&Value>| {
        let Some(value) = value else { return (Edit::Keep, Outcome::Missing) };
        // A number longer than a piece is none that fits in 64 bits.
        let Some(before) = number::unsigned(value.data.front()) else { return (Edit::Keep, Outcome::NoNumber) };
        let after = if increment { before.wrapping_add(delta) } else { before.saturating_sub(delta) };
        let text = format!("{after:<width$}", width = value.data.len());
        let data = Arc::new(Data::copy(text.as_bytes(), &session.server.stash));
        (Edit::Change { data }, Outcome::Done(after))
    };
    let outcome = session.server.store.update(key, Expiry::Never, decide).await;
    let (hit, miss) = match increment {
        true => (Counter::IncrHits, Counter::IncrMisses),
        false => (Counter::DecrHits, Counter::DecrMisses),
    };
    match outcome {
        Ok(Outcome::Done(after)) => {
            session.tally.count(hit);
            if !noreply {
                session.output.format(format_args!("{after}"));
            }
        }
        Ok(Outcome::Missing) => {
            session.tally.count(miss);
            answer(session, noreply, "NOT_FOUND");
        }
        Ok(Outcome::NoNumber) => {
            answer(session, noreply, "CLIENT_ERROR cannot increment or decrement non-numeric value");
        }
        Err(_) => answer(session, noreply, "SERVER_ERROR out of memory"),
    }
}
