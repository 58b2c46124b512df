//! The login that `-Y` asks for, before anything else.

use crate::counters::Counter;
use crate::session::Session;
use crate::store::namespace::Namespace;

/// Answers `STORED`, for it came as a set, or an error; whether the client may go on. From then on
/// it is its user's tenant.
pub fn log_in(session: &mut Session, user: &[u8], password: &[u8]) -> bool {
    session.counts.count(Counter::AuthCmds);
    let settings = &session.server.settings;
    let Some(user) = settings.users.as_ref().and_then(|users| users.check(user, password)) else {
        session.counts.count(Counter::AuthErrors);
        session.output.line("CLIENT_ERROR authentication failure");
        return false;
    };
    session.namespace = Namespace::of_tenant(user, settings.delimiter);
    session.output.line("STORED");
    true
}
