//! The decoder of the binary protocol, with the invariants of the text protocol's.
//!
//! A request is decided by its header: one that is refused, or whose client must log in first, is
//! refused before its body arrives, so that no memory is used for it. Extras and key are at most
//! 270 bytes, and stay in the input until they have arrived; the value of a store is received as
//! that of a text command.
//!
//! A change must ensure that what is kept in the input is bounded.

use std::sync::Arc;

use super::long_value::LongValue;
use super::store_request::{ReceiveProgress, StoreRequest};
use crate::protocol::binary::header::{ReplyTo, RequestHeader, HEADER_BYTES};
use crate::protocol::binary::opcode::{Opcode, Operation};
use crate::protocol::binary::request::{Read, Request};
use crate::protocol::binary::status::Status;
use crate::protocol::command::{Command, StoreVerb};
use crate::protocol::item::{item_bytes, KEY_BYTES_MAX};
use crate::receive_budget::ReceiveBudget;
use crate::value::piece_pool::PiecePool;

/// The longest body that is discarded; after a header with a longer one, the connection closes, as
/// in memcached.
const BODY_BYTES_MAX: usize = 1 << 30;

/// The longest message of a login.
const LOGIN_BYTES_MAX: usize = 2048;

/// Turns a stream of bytes into [`BinaryStep`]s.
#[derive(Debug)]
pub struct BinaryDecoder {
    item_bytes_max: usize,
    pool: Arc<PiecePool>,
    receive_budget: Option<Arc<ReceiveBudget>>,
    state: BinaryState,
}

/// The meaning of the next input byte.
#[derive(Debug)]
enum BinaryState {
    Header,
    /// A value is being received.
    Value(ReplyTo, Box<StoreRequest>),
    /// This many bytes of a body are still to be discarded; more than 0.
    Swallow(usize),
    /// No request can be found any more: all further input is discarded.
    Closed,
}

/// A step of the decoder.
#[derive(Debug)]
pub enum BinaryStep<'a> {
    /// No further step without more input.
    More,
    /// There is no room for more of a value, as in the text protocol.
    NoRoom,
    /// The client has sent something that is no request: the connection closes without an answer.
    NoRequest,
    Request(ReplyTo, BinaryRequest<'a>),
}

/// A complete request.
#[derive(Debug)]
pub enum BinaryRequest<'a> {
    Read(Read<'a>),
    Command(Command<'a>),
    Store(Box<StoreRequest>),
    /// The value is larger than `-I` allows; later steps discard it.
    TooLarge {
        verb: StoreVerb,
        key: &'a [u8],
    },
    SaslMechanisms,
    Sasl(SaslMessage<'a>),
    /// A request that is answered with an error.
    Refused(Status),
}

/// A message of a login.
#[derive(Clone, Copy, Debug)]
pub struct SaslMessage<'a> {
    pub mechanism: &'a [u8],
    pub message: &'a [u8],
    /// Whether it is not the first message.
    pub is_step: bool,
}

impl BinaryDecoder {
    /// Creates a decoder for a new stream; its parameters are those of the text decoder.
    pub fn new(item_bytes_max: usize, pool: &Arc<PiecePool>, receive_budget: Option<&Arc<ReceiveBudget>>) -> Self {
        let (pool, receive_budget) = (Arc::clone(pool), receive_budget.cloned());
        Self { item_bytes_max, pool, receive_budget, state: BinaryState::Header }
    }

    /// Sets the budget of the values that are received from now on.
    pub fn set_receive_budget(&mut self, receive_budget: &Arc<ReceiveBudget>) {
        self.receive_budget = Some(Arc::clone(receive_budget));
    }

    /// Returns the value that is being received.
    pub fn long_value(&self) -> Option<LongValue> {
        match &self.state {
            BinaryState::Value(..) => Some(LongValue::Stored),
            BinaryState::Swallow(_) => Some(LongValue::Discarded),
            BinaryState::Header | BinaryState::Closed => None,
        }
    }

    /// Returns whether no request can be found any more.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, BinaryState::Closed)
    }

    /// Abandons the value that is being received, and returns its request; later steps discard the
    /// rest of the value.
    pub fn abandon_value(&mut self) -> Option<(ReplyTo, Box<StoreRequest>)> {
        match std::mem::replace(&mut self.state, BinaryState::Header) {
            BinaryState::Value(to, request) => {
                self.swallow(request.missing());
                Some((to, request))
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Takes one step, and returns the number of consumed bytes of `input` and the step. Unless
    /// `is_logged_in`, only what a login needs is accepted.
    pub fn step<'a>(&mut self, input: &'a [u8], is_logged_in: bool) -> (usize, BinaryStep<'a>) {
        match &mut self.state {
            BinaryState::Header => self.request(input, is_logged_in),
            BinaryState::Value(_, request) => {
                let taken = match request.take(input) {
                    (taken, ReceiveProgress::More) => return (taken, BinaryStep::More),
                    (taken, ReceiveProgress::NoRoom) => return (taken, BinaryStep::NoRoom),
                    (taken, ReceiveProgress::Complete) => taken,
                };
                match std::mem::replace(&mut self.state, BinaryState::Header) {
                    BinaryState::Value(to, request) => (taken, BinaryStep::Request(to, BinaryRequest::Store(request))),
                    _ => (taken, BinaryStep::More),
                }
            }
            BinaryState::Swallow(left) => {
                let taken = input.len().min(*left);
                let left = *left - taken;
                self.swallow(left);
                if left > 0 {
                    return (taken, BinaryStep::More);
                }
                let (more, step) = self.step(&input[taken..], is_logged_in);
                (taken + more, step)
            }
            BinaryState::Closed => (input.len(), BinaryStep::More),
        }
    }

    /// Discards `bytes` more bytes.
    fn swallow(&mut self, bytes: usize) {
        self.state = if bytes > 0 { BinaryState::Swallow(bytes) } else { BinaryState::Header };
    }

    /// Takes one step at the beginning of a request.
    fn request<'a>(&mut self, input: &'a [u8], is_logged_in: bool) -> (usize, BinaryStep<'a>) {
        let Some((head, rest)) = input.split_first_chunk::<HEADER_BYTES>() else { return (0, BinaryStep::More) };
        let Some(header) = RequestHeader::parse(head) else {
            self.state = BinaryState::Closed;
            return (input.len(), BinaryStep::NoRequest);
        };
        let opcode = Opcode::of(header.opcode);
        let is_quiet = opcode.is_some_and(|opcode| opcode.is_quiet);
        let to = ReplyTo { opcode: header.opcode, opaque: header.opaque, is_quiet };
        let (opcode, value) = match self.check(&header, opcode, is_logged_in) {
            Ok(accepted) => accepted,
            Err((status, state)) => {
                self.state = state;
                return (HEADER_BYTES, BinaryStep::Request(to, BinaryRequest::Refused(status)));
            }
        };
        let Some((extras, rest)) = rest.split_at_checked(header.extras_length) else { return (0, BinaryStep::More) };
        let Some((key, rest)) = rest.split_at_checked(header.key_length) else { return (0, BinaryStep::More) };
        let used = HEADER_BYTES + header.extras_length + header.key_length;
        let request = match Request::parse(&header, opcode, extras, key, value) {
            Request::Read(read) => BinaryRequest::Read(read),
            Request::Command(command) => BinaryRequest::Command(command),
            Request::Store(store) if item_bytes(&store.key, store.flags, value) > self.item_bytes_max => {
                self.swallow(value);
                // As in memcached: a CAS number does not make a `set` another command here.
                let (Operation::Store(verb) | Operation::Join(verb)) = opcode.operation else {
                    return (used, BinaryStep::More);
                };
                BinaryRequest::TooLarge { verb, key }
            }
            Request::Store(store) => {
                let request = StoreRequest::of_binary(store, &self.pool, self.receive_budget.as_ref());
                self.state = BinaryState::Value(to, Box::new(request));
                let (more, step) = self.step(rest, is_logged_in);
                return (used + more, step);
            }
            Request::SaslMechanisms => BinaryRequest::SaslMechanisms,
            Request::Sasl { mechanism, is_step } => {
                let Some(message) = rest.get(..value) else { return (0, BinaryStep::More) };
                let request = BinaryRequest::Sasl(SaslMessage { mechanism, message, is_step });
                return (used + value, BinaryStep::Request(to, request));
            }
        };
        (used, BinaryStep::Request(to, request))
    }

    /// Checks what the header tells, and returns the opcode and the length of the value.
    ///
    /// # Errors
    ///
    /// The status of the refusal, and the state after the header.
    fn check(
        &self,
        header: &RequestHeader,
        opcode: Option<&'static Opcode>,
        is_logged_in: bool,
    ) -> Result<(&'static Opcode, usize), (Status, BinaryState)> {
        let closed = |status| (status, BinaryState::Closed);
        let after = |status, bytes| match bytes {
            0 => (status, BinaryState::Header),
            bytes => (status, BinaryState::Swallow(bytes)),
        };
        let value = header.value_length().ok_or(closed(Status::UnknownCommand))?;
        if header.body_length > BODY_BYTES_MAX {
            return Err(closed(Status::InvalidArguments));
        }
        if !is_logged_in && !opcode.is_some_and(|opcode| opcode.operation.is_before_login()) {
            return Err(closed(Status::AuthError));
        }
        if header.key_length > KEY_BYTES_MAX {
            return Err(closed(Status::InvalidArguments));
        }
        let opcode = opcode.ok_or_else(|| after(Status::UnknownCommand, header.body_length))?;
        if !opcode.operation.accepts(header, value) {
            return Err(closed(Status::InvalidArguments));
        }
        if matches!(opcode.operation, Operation::SaslAuth | Operation::SaslStep) && value > LOGIN_BYTES_MAX {
            return Err(after(Status::TooLarge, header.body_length));
        }
        Ok((opcode, value))
    }
}
