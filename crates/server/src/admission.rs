//! Admission of commands: those that a tenant's limits refuse are answered with an error and not
//! run.
//!
//! A connection that was refused a command for its rate decodes and reads nothing more until a
//! command would be admitted again, or for [`PAUSE_MAX`]. So a client that ignores the errors
//! cannot take the thread's time from the others: each pause follows a single error.
//!
//! The bytes of a command are charged with it. Those of a value of more than [`PART_BYTES`] are
//! charged as they arrive, as no command may ever follow them; the connection reads no more of the
//! value until they are paid for.
//!
//! A change must ensure that a refused command has no effect, and that the stream stays in step: a
//! store is refused together with its value.

use std::time::Duration;

use crate::counters::Counter;
use crate::decoder::binary::BinaryRequest;
use crate::decoder::long_value::LongValue;
use crate::decoder::{PlainStep, Step};
use crate::protocol::binary::header::ReplyTo;
use crate::protocol::binary::request::Read;
use crate::protocol::binary::status::Status;
use crate::protocol::command::Command;
use crate::protocol::command_set::{CommandKind, CommandSet};
use crate::session::Session;
use crate::traffic::Refusal;

/// The shortest pause of a connection. A pause that is longer than necessary does not lower the
/// rate, as the commands of a longer time, the burst of a rate, may be admitted together.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause of a connection. A command that comes after it may be refused again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The bytes of a value that is being received are charged together when they are as many. Shorter
/// values are charged with their command.
const PART_BYTES: u64 = 64 * 1024;

/// Returns whether the limits of the session's tenant admit the command of `step`. Otherwise
/// answers with an error, and above a rate sets the session's pause.
#[inline]
pub fn admit(session: &mut Session, step: &Step<'_>) -> bool {
    session.limited_traffic().is_none() || admit_step(session, step)
}

/// As [`admit`], for a tenant with limits.
fn admit_step(session: &mut Session, step: &Step<'_>) -> bool {
    match step {
        // Of a value that is being received, only the last step counts as a request; if the value
        // is abandoned, the caller uses `admit_store`.
        Step::More | Step::NoRoom => true,
        Step::Plain(PlainStep::Get { .. }) => {
            admit_command(session, 1, CommandSet::default().with(CommandKind::Get), false)
        }
        // A `gat` may have no keys.
        Step::Command(command @ Command::Get { keys, .. }) => {
            admit_command(session, (keys.clone().count() as u64).max(1), CommandSet::of(command), false)
        }
        Step::Command(command) => admit_command(session, 1, CommandSet::of(command), command.is_noreply()),
        Step::Store(request) => admit_store(session, request.noreply),
        Step::Plain(PlainStep::Set { command, .. }) => admit_store(session, command.noreply),
        Step::TooLarge { noreply, .. } => admit_store(session, *noreply),
        Step::Error(refused) => admit_command(session, 1, CommandSet::default(), refused.noreply),
    }
}

/// Returns whether the limits admit a store command, as [`admit`] does.
pub fn admit_store(session: &mut Session, noreply: bool) -> bool {
    admit_command(session, 1, CommandSet::default().with(CommandKind::Set), noreply)
}

/// Returns whether the limits admit a command of the kinds `commands` that uses `requests`
/// requests, as [`admit`] does.
fn admit_command(session: &mut Session, requests: u64, commands: CommandSet, noreply: bool) -> bool {
    let Some(refused) = refusal(session, requests, commands) else { return true };
    answer(session, &refused, |session| {
        session.answer(
            noreply,
            &match &refused {
                Refused::OverLimit(why) => format!("SERVER_ERROR {why}"),
                Refused::Denied(why) => format!("CLIENT_ERROR {why}"),
            },
        );
    });
    false
}

/// Returns whether the limits of the session's tenant admit a request of the binary protocol, as
/// [`admit`] does.
pub fn admit_binary(session: &mut Session, to: ReplyTo, request: &BinaryRequest<'_>) -> bool {
    if session.limited_traffic().is_none() {
        return true;
    }
    let kinds = match request {
        BinaryRequest::Read(Read { touch, with_value, .. }) => {
            let get = CommandSet::default().with_if(CommandKind::Get, *with_value);
            get.with_if(CommandKind::Touch, touch.is_some())
        }
        BinaryRequest::Command(command) => CommandSet::of(command),
        BinaryRequest::Store(_) | BinaryRequest::TooLarge { .. } => CommandSet::default().with(CommandKind::Set),
        BinaryRequest::SaslMechanisms | BinaryRequest::Sasl(_) | BinaryRequest::Refused(_) => CommandSet::default(),
    };
    admit_binary_kinds(session, to, kinds)
}

/// Returns whether the limits admit a store of the binary protocol whose value was abandoned.
pub fn admit_binary_store(session: &mut Session, to: ReplyTo) -> bool {
    admit_binary_kinds(session, to, CommandSet::default().with(CommandKind::Set))
}

fn admit_binary_kinds(session: &mut Session, to: ReplyTo, kinds: CommandSet) -> bool {
    let Some(refused) = refusal(session, 1, kinds) else { return true };
    let (status, why) = match &refused {
        Refused::OverLimit(why) => (Status::Busy, why),
        Refused::Denied(why) => (Status::AuthError, why),
    };
    answer(session, &refused, |session| session.output.binary_error(to, status, Some(why)));
    false
}

/// Charges what has arrived of `value`, which is being received, and sets the session's pause while
/// bytes of the tenant are not paid for. The tenant has limits.
#[inline]
pub fn charge_value(session: &mut Session, value: Option<LongValue>) {
    let is_charged = value.is_some() && (session.charged_value == value || session.received >= PART_BYTES);
    session.charged_value = value.filter(|_| is_charged);
    if is_charged {
        charge_received(session);
    }
}

/// Charges what was received without a command: a part of a value, or the input of a watcher. Sets
/// the session's pause while bytes of the tenant are not paid for.
#[cold]
pub fn charge_received(session: &mut Session) {
    let received = std::mem::take(&mut session.received);
    let Some(traffic) = session.limited_traffic() else { return };
    traffic.charge(received);
    let wait = traffic.bytes_wait();
    if !wait.is_zero() {
        session.pause = wait.clamp(PAUSE_MIN, PAUSE_MAX);
    }
}

/// Adds the reply about a refusal by `add`. The reply to a command above a limit is not charged:
/// the replies to many clients that try again would otherwise use up the limit.
fn answer(session: &mut Session, refused: &Refused, add: impl FnOnce(&mut Session)) {
    let before = session.output.unwritten();
    add(session);
    if let Refused::OverLimit(_) = refused {
        session.uncharged += session.output.unwritten() - before;
    }
}

/// A refusal, and a sentence about it.
enum Refused {
    OverLimit(String),
    Denied(String),
}

/// Returns the refusal of a command, unless the limits admit it. Above a rate, sets the session's
/// pause.
fn refusal(session: &mut Session, requests: u64, commands: CommandSet) -> Option<Refused> {
    // A value that was discarded belongs to an earlier command.
    let has_paid = session.charged_value.take() == Some(LongValue::Stored);
    let traffic = session.limited_traffic()?;
    let admitted = traffic.admit(requests, commands, has_paid);
    // The bytes of a command are charged after its admission, as they may be more than a burst.
    // Those of a command above a limit are not charged: a client that tries again at once would
    // otherwise never be admitted.
    if !matches!(admitted, Err(Refusal::OverLimit { .. })) {
        traffic.charge(session.received);
    }
    session.received = 0;
    let (counter, refused) = match admitted.err()? {
        Refusal::OverLimit { limit, wait } => {
            session.pause = wait.clamp(PAUSE_MIN, PAUSE_MAX);
            (Counter::RefusedRequests, Refused::OverLimit(format!("the tenant is above its limit of {limit}")))
        }
        Refusal::Denied { command } => {
            (Counter::DeniedCommands, Refused::Denied(format!("{command} is denied to this tenant")))
        }
    };
    session.counts.count(counter);
    Some(refused)
}
