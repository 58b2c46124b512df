//! `touch`: a new exptime for a value that stays as it is, its unique number too.

use super::answer;
use crate::connection::Session;
use crate::expiry::Expiry;
use crate::stats::Counter;

/// Answers `TOUCHED` or `NOT_FOUND`.
pub fn touch(session: &mut Session, key: &[u8], exptime: i64, noreply: bool) {
    let found = session.server.store.touch(&session.scope.name(key), Expiry::of(exptime));
    session.tally.count(Counter::CmdTouch);
    session.tally.count(if found { Counter::TouchHits } else { Counter::TouchMisses });
    answer(session, noreply, if found { "TOUCHED" } else { "NOT_FOUND" });
}
