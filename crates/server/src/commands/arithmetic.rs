//! `incr` and `decr`, on values that are decimal numbers.
//!
//! `incr` wraps at 2^64, `decr` stops at 0. A result shorter than the previous value is padded with
//! spaces to the previous length, as in memcached (which writes in place): `decr` of `"10"` by 1
//! answers `9` and stores `"9 "`.
//!
//! A change must ensure that the new value is computed from the value that it replaces, in one
//! update.

use crate::counters::Counter;
use crate::protocol::expiry::Expiry;
use crate::protocol::number;
use crate::server::Server;
use crate::session::Session;
use crate::store::{Edit, Existing};
use crate::value::data::Data;
use crate::value::item_flags::ItemFlags;
use crate::value::Value;

pub(super) const NO_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
pub(super) const NO_MEMORY: &str = "SERVER_ERROR out of memory";

/// An amount to add to a number, or without `increment` to subtract from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delta {
    pub increment: bool,
    pub amount: u64,
}

enum ArithmeticOutcome {
    Missing,
    NoNumber,
    Done(u64),
}

/// Answers with the new number, `NOT_FOUND`, or an error.
pub async fn arithmetic(session: &mut Session, key: &[u8], delta: Delta, noreply: bool) {
    let decide =
        |there: Option<Existing<'_>>| match there.map(|there| calculate(there.value, delta, None, &session.server)) {
            None => (Edit::Keep, ArithmeticOutcome::Missing),
            Some(None) => (Edit::Keep, ArithmeticOutcome::NoNumber),
            Some(Some((value, number))) => (Edit::Change(value), ArithmeticOutcome::Done(number)),
        };
    let full_key = session.namespace.qualify(key);
    // The expiry is not used: `Edit::Change` keeps the time left of the existing value.
    let outcome = session.server.store.update(&full_key, Expiry::Never, decide).await;
    let (hits, misses) = delta.counters();
    match outcome {
        Ok(ArithmeticOutcome::Done(number)) => {
            session.counts.count(hits);
            if !noreply {
                session.output.stored_number(number);
            }
        }
        Ok(ArithmeticOutcome::Missing) => {
            session.counts.count(misses);
            session.answer(noreply, "NOT_FOUND");
        }
        Ok(ArithmeticOutcome::NoNumber) => session.answer(noreply, NO_NUMBER),
        Err(_) => session.answer(noreply, NO_MEMORY),
    }
}

impl Delta {
    /// Returns the counter of hits and the counter of misses.
    pub(super) fn counters(self) -> (Counter, Counter) {
        match self.increment {
            true => (Counter::IncrHits, Counter::IncrMisses),
            false => (Counter::DecrHits, Counter::DecrMisses),
        }
    }
}

/// Returns `old` with its number changed, and the new number; `None` if `old` is not a number.
/// `given` is the CAS number of the result, if the client has given one.
pub(super) fn calculate(old: &Value, delta: Delta, given: Option<u64>, server: &Server) -> Option<(Value, u64)> {
    // Most numbers are short: they are parsed without an iterator over pieces.
    let before = old.only_piece().and_then(number::digits).or_else(|| number::of_value(old.pieces()))?;
    let after = match delta.increment {
        true => before.wrapping_add(delta.amount),
        false => before.saturating_sub(delta.amount),
    };
    // Padded by hand: the width of `format!` is at most 65,535.
    let mut text = after.to_string().into_bytes();
    text.resize(text.len().max(old.len()), b' ');
    let data = Data::copy(&text, &server.piece_pool);
    // As in memcached: a number of the same length keeps the flags and the fetched bit of the old
    // value, as if it were changed in place; a longer number is a new value.
    let stays = data.len() == old.len();
    let item_flags =
        if stays { old.item_flags() } else { ItemFlags { binary: old.item_flags().binary, ..ItemFlags::default() } };
    let value = server.store.new_value(old.key(), old.client_flags(), item_flags, given, &data);
    if stays {
        value.last_access.inherit_fetched(&old.last_access);
    }
    Some((value, after))
}
