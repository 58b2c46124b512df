//! The login that is required first if `-Y` is given.
//!
//! Until it succeeds no other command is decoded; afterwards the session's namespace is that of the
//! user's tenant.
//!
//! A change must ensure that a session gets a namespace only after the password was checked and the
//! tenant has admitted the connection.

use crate::counters::Counter;
use crate::session::Session;
use crate::store::namespace::Namespace;

/// The reason why a login is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// There is no such user, or the password is wrong.
    Wrong,
    /// The tenant has as many connections as it may have.
    TooManyConnections,
}

impl LoginRefusal {
    /// Returns the line of the text protocol.
    pub fn line(self) -> &'static str {
        match self {
            Self::Wrong => "CLIENT_ERROR authentication failure",
            Self::TooManyConnections => "SERVER_ERROR too many open connections of this tenant",
        }
    }
}

/// Answers `STORED` (a login has the form of a `set`) or an error, and returns whether the login
/// succeeded.
pub fn log_in(session: &mut Session, user: &[u8], password: &[u8]) -> bool {
    let outcome = authenticate(session, user, password);
    session.output.line(outcome.map_or_else(LoginRefusal::line, |()| "STORED"));
    outcome.is_ok()
}

/// Checks a user's password. Afterwards, the connection belongs to the tenant of the user's name.
///
/// # Errors
///
/// The reason of a refusal, which is counted; nothing has changed then.
pub fn authenticate(session: &mut Session, user: &[u8], password: &[u8]) -> Result<(), LoginRefusal> {
    session.counts.count(Counter::AuthCmds);
    let server = &session.server;
    let namespace = server.users.read().as_ref().and_then(|users| {
        let user = users.check(user, password)?;
        Some(Namespace::of_tenant(user, server.settings.delimiter))
    });
    let Some(namespace) = namespace else {
        session.counts.count(Counter::AuthErrors);
        return Err(LoginRefusal::Wrong);
    };
    if session.permit.is_some() && session.namespace == namespace {
        // A repeated login: it needs no second permit, which the tenant's limit might refuse.
        return Ok(());
    }
    // The permit of an earlier login, if any, is returned only when there is another.
    let Some(permit) = server.store.admit_connection(&namespace) else {
        session.counts.count(Counter::RejectedConnections);
        return Err(LoginRefusal::TooManyConnections);
    };
    session.permit = Some(permit);
    session.namespace = namespace;
    Ok(())
}
