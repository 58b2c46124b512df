//! `touch`: a new exptime for a value that stays as it is, its unique number too.

use super::answer;
use crate::connection::Session;
use crate::expiry::Expiry;
use crate::stats::Counter;
use crate::store::Edit;
use crate::value::Value;

/// Answers `TOUCHED` or `NOT_FOUND`.
pub fn touch(session: &mut Session, key: &[u8], exptime: i64, noreply: bool) {
    let found = retime(session, key, Expiry::of(exptime)).is_some();
    session.tally.count(Counter::CmdTouch);
    session.tally.count(if found { Counter::TouchHits } else { Counter::TouchMisses });
    answer(session, noreply, if found { "TOUCHED" } else { "NOT_FOUND" });
}

/// Gives the value under `key` its new time, and returns it.
pub fn retime(session: &Session, key: &[u8], expiry: Expiry) -> Option<Value> {
    let touched = session.server.store.update(key, |value| match (value, expiry) {
        (None, _) => (Edit::Keep, None),
        (Some(value), Expiry::Past) => (Edit::Remove, Some(value.clone())),
        (Some(value), _) => (Edit::Retime(expiry.instant()), Some(value.clone())),
    });
    // No memory for a second header of the same value: it keeps its old time, and was found all the same.
    touched.unwrap_or_else(|_| session.server.store.get(key))
}
