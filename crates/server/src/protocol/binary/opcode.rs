//! The opcodes: which operation each is, and whether it is the quiet form.
//!
//! A change must ensure that each opcode has one row in the table, and that the lengths which an
//! operation accepts are checked before its body arrives.

use super::header::RequestHeader;
use crate::protocol::command::StoreVerb;

/// The effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `get`, and `getk`, whose reply has the key.
    Get {
        with_key: bool,
    },
    /// `gat`, and `gatk`, whose reply has the key.
    GetAndTouch {
        with_key: bool,
    },
    Touch,
    /// `set`, `add`, `replace`
    Store(StoreVerb),
    /// `append`, `prepend`
    Join(StoreVerb),
    Delete,
    Arithmetic {
        increment: bool,
    },
    Flush,
    Version,
    Noop,
    Quit,
    Stat,
    Verbosity,
    SaslMechanisms,
    SaslAuth,
    SaslStep,
}

/// A known opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    pub code: u8,
    /// The name in logs.
    pub name: &'static str,
    pub operation: Operation,
    /// Whether the usual outcome gets no reply.
    pub is_quiet: bool,
}

macro_rules! opcodes {
    ($($code:literal $name:literal $operation:expr, $is_quiet:literal;)*) => {
        const OPCODES: &[Opcode] =
            &[$(Opcode { code: $code, name: $name, operation: $operation, is_quiet: $is_quiet },)*];
    };
}

opcodes! {
    0x00 "get" Operation::Get { with_key: false }, false;
    0x01 "set" Operation::Store(StoreVerb::Set), false;
    0x02 "add" Operation::Store(StoreVerb::Add), false;
    0x03 "replace" Operation::Store(StoreVerb::Replace), false;
    0x04 "delete" Operation::Delete, false;
    0x05 "incr" Operation::Arithmetic { increment: true }, false;
    0x06 "decr" Operation::Arithmetic { increment: false }, false;
    0x07 "quit" Operation::Quit, false;
    0x08 "flush" Operation::Flush, false;
    0x09 "getq" Operation::Get { with_key: false }, true;
    0x0a "noop" Operation::Noop, false;
    0x0b "version" Operation::Version, false;
    0x0c "getk" Operation::Get { with_key: true }, false;
    0x0d "getkq" Operation::Get { with_key: true }, true;
    0x0e "append" Operation::Join(StoreVerb::Append), false;
    0x0f "prepend" Operation::Join(StoreVerb::Prepend), false;
    0x10 "stat" Operation::Stat, false;
    0x11 "setq" Operation::Store(StoreVerb::Set), true;
    0x12 "addq" Operation::Store(StoreVerb::Add), true;
    0x13 "replaceq" Operation::Store(StoreVerb::Replace), true;
    0x14 "deleteq" Operation::Delete, true;
    0x15 "incrq" Operation::Arithmetic { increment: true }, true;
    0x16 "decrq" Operation::Arithmetic { increment: false }, true;
    0x17 "quitq" Operation::Quit, true;
    0x18 "flushq" Operation::Flush, true;
    0x19 "appendq" Operation::Join(StoreVerb::Append), true;
    0x1a "prependq" Operation::Join(StoreVerb::Prepend), true;
    0x1b "verbosity" Operation::Verbosity, false;
    0x1c "touch" Operation::Touch, false;
    0x1d "gat" Operation::GetAndTouch { with_key: false }, false;
    0x1e "gatq" Operation::GetAndTouch { with_key: false }, true;
    0x20 "sasl_mechs" Operation::SaslMechanisms, false;
    0x21 "sasl_auth" Operation::SaslAuth, false;
    0x22 "sasl_step" Operation::SaslStep, false;
    0x23 "gatk" Operation::GetAndTouch { with_key: true }, false;
    0x24 "gatkq" Operation::GetAndTouch { with_key: true }, true;
}

impl Opcode {
    /// Returns the opcode with this number, if there is one.
    pub fn of(code: u8) -> Option<&'static Self> {
        OPCODES.iter().find(|opcode| opcode.code == code)
    }
}

impl Operation {
    /// Returns whether a client that has not logged in may request it.
    pub fn is_before_login(self) -> bool {
        matches!(self, Self::SaslMechanisms | Self::SaslAuth | Self::SaslStep | Self::Version)
    }

    /// Returns whether a request with these lengths is valid; `value` is the length of its value.
    pub fn accepts(self, header: &RequestHeader, value: usize) -> bool {
        let (extras, has_key, has_value) = (header.extras_length, header.key_length > 0, value > 0);
        match self {
            Self::Version | Self::Noop | Self::Quit | Self::SaslMechanisms => header.body_length == 0,
            Self::Get { .. } | Self::Delete => extras == 0 && has_key && !has_value,
            Self::GetAndTouch { .. } | Self::Touch => extras == 4 && has_key && !has_value,
            Self::Store(_) => extras == 8 && has_key,
            Self::Join(_) | Self::SaslAuth | Self::SaslStep => extras == 0 && has_key,
            Self::Arithmetic { .. } => extras == 20 && has_key && !has_value,
            Self::Flush => matches!(extras, 0 | 4) && !has_key && !has_value,
            Self::Stat => extras == 0 && !has_value,
            Self::Verbosity => extras == 4 && !has_key && !has_value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_unique_and_in_order() {
        assert!(OPCODES.is_sorted_by(|a, b| a.code < b.code));
        assert_eq!(OPCODES.iter().filter(|opcode| opcode.is_quiet).count(), 14);
        for (quiet, loud) in [("getkq", "getk"), ("decrq", "decr"), ("gatkq", "gatk"), ("flushq", "flush")] {
            let of = |name| OPCODES.iter().find(|opcode| opcode.name == name).unwrap();
            assert_eq!((of(quiet).operation, of(quiet).is_quiet), (of(loud).operation, true));
        }
        assert_eq!((Opcode::of(0x1f), Opcode::of(0x25), Opcode::of(0xff)), (None, None, None));
    }
}
