//! A connection of the binary protocol: runs all complete requests in the input.
//!
//! As for the text protocol, but with the binary decoder, whose requests have replies of their own.
//!
//! A change must ensure that all that bounds a text connection (admission, full outputs, pauses,
//! room for values) bounds this one, too.

use std::io;
use std::ops::ControlFlow;

use super::Connection;
use crate::admission::{admit_binary, admit_binary_store};
use crate::commands::binary::{self, SaslState};
use crate::decoder::binary::{BinaryRequest, BinaryStep};
use crate::log::SENT_BYTES_MAX;
use crate::protocol::binary::header::ReplyTo;
use crate::protocol::binary::opcode::Opcode;
use crate::protocol::command::Command;
use crate::store::update::{ROOM_PAUSE, ROOM_PAUSES_MAX};
use crate::timers;

impl Connection {
    /// As [`serve_input`](Self::serve_input), for the binary protocol.
    pub(super) async fn serve_binary(&mut self) -> io::Result<ControlFlow<()>> {
        let (mut used, mut waits) = (0, 0);
        let mut next = ControlFlow::Continue(());
        let is_logged = self.session.server.verbosity() > 0;
        self.session.output.set_trace(is_logged);
        while next.is_continue() && used < self.input.len() {
            self.session.check_not_ended()?;
            let Self { session, decoder, input, login, sasl, sent, .. } = self;
            let Some(decoder) = decoder.binary() else { break };
            let is_logged_in = login.is_none() || *sasl == SaslState::LoggedIn;
            let (taken, step) = decoder.step(&input[used..], is_logged_in);
            used += taken;
            match step {
                BinaryStep::More => break,
                BinaryStep::NoRequest => next = ControlFlow::Break(()),
                // As in the text protocol.
                BinaryStep::NoRoom if session.server.settings.evict && waits < ROOM_PAUSES_MAX => {
                    waits += 1;
                    session.flush().await?;
                    timers::sleep(ROOM_PAUSE).await;
                    continue;
                }
                BinaryStep::NoRoom => {
                    if let Some((to, request)) = decoder.abandon_value() {
                        if admit_binary_store(session, to) {
                            binary::no_room(session, to, &request);
                        }
                    }
                }
                BinaryStep::Request(to, request) => {
                    if is_logged {
                        *sent = Some(shown(to, &request));
                    }
                    match request {
                        request if !admit_binary(session, to, &request) => {}
                        BinaryRequest::Read(read) => binary::read(session, to, read),
                        BinaryRequest::Command(command) => next = binary::run(session, to, command).await?,
                        BinaryRequest::Store(request) => binary::store(session, to, request).await,
                        BinaryRequest::TooLarge { verb, key } => binary::too_large(session, to, verb, key),
                        BinaryRequest::SaslMechanisms => binary::sasl_mechanisms(session, to),
                        BinaryRequest::Sasl(message) => {
                            let was_limited = session.limited_traffic().is_some();
                            *sasl = binary::sasl(session, to, message, *sasl);
                            session.charge_behind_login(input.len() - used, was_limited);
                            // A login may have changed the tenant.
                            self.decoder.set_receive_budget(self.session.receive_budget());
                        }
                        BinaryRequest::Refused(status) => session.output.binary_error(to, status, None),
                    }
                }
            }
            let is_closed = self.decoder.binary().is_some_and(|decoder| decoder.is_closed());
            if is_closed {
                self.is_refused = true;
                next = ControlFlow::Break(());
            }
            waits = 0;
            self.commands += 1;
            if self.is_due_after_command(is_logged) && self.after_command(is_logged).await?.is_break() {
                break;
            }
        }
        self.input.advance(used);
        self.note_value();
        self.session.flush().await?;
        if self.is_refused {
            self.end_after_refusal().await?;
        }
        Ok(next)
    }
}

/// Returns the request for the log, without its value: the name and the key.
fn shown(to: ReplyTo, request: &BinaryRequest<'_>) -> Box<[u8]> {
    let key = match request {
        BinaryRequest::Read(read) => read.key,
        BinaryRequest::Command(Command::Meta(meta)) => &meta.key,
        BinaryRequest::Command(Command::Stats { topic, .. }) => topic.unwrap_or_default(),
        BinaryRequest::Store(request) => &request.key,
        BinaryRequest::TooLarge { key, .. } => key,
        BinaryRequest::Sasl(message) => message.mechanism,
        BinaryRequest::Command(_) | BinaryRequest::SaslMechanisms | BinaryRequest::Refused(_) => b"",
    };
    let name = match Opcode::of(to.opcode) {
        Some(opcode) => opcode.name.to_owned(),
        None => format!("{:#04x}", to.opcode),
    };
    let mut text = format!("binary {name}").into_bytes();
    if !key.is_empty() {
        text.push(b' ');
        text.extend(&key[..key.len().min(SENT_BYTES_MAX)]);
    }
    text.into()
}
