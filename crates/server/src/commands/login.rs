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

/// Answers `STORED` (a login has the form of a `set`) or an error, and returns whether the login
/// succeeded. After a login, the connection belongs to the tenant of the user's name.
pub fn log_in(session: &mut Session, user: &[u8], password: &[u8]) -> bool {
    session.counts.count(Counter::AuthCmds);
    let server = &session.server;
    let namespace = server.users.read().as_ref().and_then(|users| {
        let user = users.check(user, password)?;
        Some(Namespace::of_tenant(user, server.settings.delimiter))
    });
    let Some(namespace) = namespace else {
        session.counts.count(Counter::AuthErrors);
        session.output.line("CLIENT_ERROR authentication failure");
        return false;
    };
    // The permit of an earlier login, if any, is returned only when there is another.
    let Some(permit) = server.store.admit_connection(&namespace) else {
        session.counts.count(Counter::RejectedConnections);
        session.output.line("SERVER_ERROR too many open connections of this tenant");
        return false;
    };
    session.permit = Some(permit);
    session.namespace = namespace;
    session.output.line("STORED");
    true
}
