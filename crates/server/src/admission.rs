//! Admission of commands: those that a tenant's limits refuse are answered with an error and not
//! run.
//!
//! A connection that was refused a command for its rate decodes and reads nothing more until a
//! command would be admitted again, or for [`PAUSE_MAX`]. So a client that ignores the errors
//! cannot take the thread's time from the others: each pause follows a single error.
//!
//! A change must ensure that a refused command has no effect, and that the stream stays in step: a
//! store is refused together with its value.

use std::time::Duration;

use crate::counters::Counter;
use crate::decoder::Step;
use crate::protocol::command::Command;
use crate::protocol::command_set::{CommandKind, CommandSet};
use crate::session::Session;
use crate::traffic::Refusal;

/// The shortest pause of a connection. A pause that is longer than necessary does not lower the
/// rate, as the commands of a longer time, the burst of a rate, may be admitted together.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause of a connection. A command that comes after it may be refused again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Returns whether the limits of the session's tenant admit the command of `step`. Otherwise
/// answers with an error, and above a rate sets the session's pause.
pub fn admit(session: &mut Session, step: &Step<'_>) -> bool {
    let Some(traffic) = session.limited_traffic() else { return true };
    let store = CommandSet::default().with(CommandKind::Set);
    let (requests, commands, noreply) = match step {
        // Of a value that is being received, only the last step counts; without room, none does.
        Step::More | Step::NoRoom => return true,
        Step::Command(command @ Command::Get { keys, .. }) => {
            (keys.clone().count() as u64, CommandSet::of(command), false)
        }
        Step::Command(command) => (1, CommandSet::of(command), command.is_noreply()),
        Step::Store(request) => (1, store, request.noreply),
        Step::Set { command, .. } => (1, store, command.noreply),
        Step::TooLarge { noreply, .. } => (1, store, *noreply),
        Step::Error(refused) => (1, CommandSet::default(), refused.noreply),
    };
    let admitted = traffic.admit(requests, commands);
    // The bytes of a command are charged after its admission, as they may be more than a burst.
    // Those of a command above a limit are not charged: a client that tries again at once would
    // otherwise never be admitted.
    if !matches!(admitted, Err(Refusal::OverLimit { .. })) {
        traffic.charge(session.received);
    }
    session.received = 0;
    let Err(refusal) = admitted else { return true };
    let (counter, text) = match refusal {
        Refusal::OverLimit { limit, wait } => {
            session.pause = wait.clamp(PAUSE_MIN, PAUSE_MAX);
            (Counter::RefusedRequests, format!("SERVER_ERROR the tenant is above its limit of {limit}"))
        }
        Refusal::Denied { command } => {
            (Counter::DeniedCommands, format!("CLIENT_ERROR {command} is denied to this tenant"))
        }
    };
    session.counts.count(counter);
    session.answer(noreply, &text);
    false
}
