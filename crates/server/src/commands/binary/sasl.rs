//! SASL: the login of the binary protocol, with the users of `-Y`. The one mechanism is PLAIN: its
//! message is an identity that is not used, the user and the password, with a zero byte between
//! them.
//!
//! A change must ensure that a login that has failed leaves the client logged out.

use super::super::login::{authenticate, LoginRefusal};
use crate::counters::Counter;
use crate::decoder::binary::SaslMessage;
use crate::protocol::binary::header::ReplyTo;
use crate::protocol::binary::status::Status;
use crate::session::Session;

const MECHANISM: &str = "PLAIN";

/// The login of a connection, if users are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslState {
    LoggedOut,
    /// The client has named the mechanism, and its message is to follow.
    Begun,
    LoggedIn,
}

/// Answers with the mechanisms; without users there are none, as in memcached without `-S`.
pub fn sasl_mechanisms(session: &mut Session, to: ReplyTo) {
    match session.server.settings.users {
        Some(_) => session.output.binary_success(to, MECHANISM.as_bytes(), 0),
        None => session.output.binary_error(to, Status::UnknownCommand, None),
    }
}

/// Runs the first message of a login, or with `is_step` a later one. Returns the state after it.
pub fn sasl(session: &mut Session, to: ReplyTo, login: SaslMessage<'_>, state: SaslState) -> SaslState {
    let SaslMessage { mechanism, message, is_step } = login;
    if session.server.settings.users.is_none() {
        session.output.binary_error(to, Status::UnknownCommand, None);
        return SaslState::LoggedIn;
    }
    if mechanism != MECHANISM.as_bytes() || (is_step && state != SaslState::Begun) {
        session.counts.count(Counter::AuthCmds);
        session.counts.count(Counter::AuthErrors);
        session.output.binary_error(to, Status::AuthError, None);
        return SaslState::LoggedOut;
    }
    if message.is_empty() && !is_step {
        session.output.binary_reply(to, Status::AuthContinue, b"", b"", 0);
        return SaslState::Begun;
    }
    let mut parts = message.split(|byte| *byte == 0);
    // No user has an empty name: another number of parts is a wrong login.
    let (user, password) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(user), Some(password), None) => (user, password),
        _ => Default::default(),
    };
    match authenticate(session, user, password) {
        Ok(()) => {
            session.output.binary_success(to, b"Authenticated", 0);
            SaslState::LoggedIn
        }
        Err(LoginRefusal::Wrong) => {
            session.output.binary_error(to, Status::AuthError, None);
            SaslState::LoggedOut
        }
        Err(LoginRefusal::TooManyConnections) => {
            session.output.binary_error(to, Status::Busy, Some("too many open connections of this tenant"));
            SaslState::LoggedOut
        }
    }
}
