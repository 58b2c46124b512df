//! The statuses of replies, with memcached's texts, which are the values of error replies.
//!
//! A change must keep the texts, which clients show, and some compare.

/// The outcome of a request.
#[doc(alias = "protocol_binary_response_status")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Success,
    NotFound,
    /// The value has another CAS number; of an `add`, that there is a value.
    Exists,
    TooLarge,
    InvalidArguments,
    NotStored,
    NoNumber,
    /// Not logged in, a wrong password, or a request that this client must not make.
    AuthError,
    /// The login needs another message.
    AuthContinue,
    UnknownCommand,
    OutOfMemory,
    /// A limit of the tenant is reached; memcached has no such limits.
    Busy,
    TemporaryFailure,
}

impl Status {
    /// Returns the number in the header.
    pub fn code(self) -> u16 {
        match self {
            Self::Success => 0x0000,
            Self::NotFound => 0x0001,
            Self::Exists => 0x0002,
            Self::TooLarge => 0x0003,
            Self::InvalidArguments => 0x0004,
            Self::NotStored => 0x0005,
            Self::NoNumber => 0x0006,
            Self::AuthError => 0x0020,
            Self::AuthContinue => 0x0021,
            Self::UnknownCommand => 0x0081,
            Self::OutOfMemory => 0x0082,
            Self::Busy => 0x0085,
            Self::TemporaryFailure => 0x0086,
        }
    }

    /// Returns the text of an error.
    pub fn text(self) -> &'static str {
        match self {
            Self::Success | Self::AuthContinue => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::InvalidArguments => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NoNumber => "Non-numeric server-side value for incr or decr",
            Self::AuthError => "Auth failure.",
            Self::UnknownCommand => "Unknown command",
            Self::OutOfMemory => "Out of memory",
            Self::Busy => "Busy",
            Self::TemporaryFailure => "Temporary failure",
        }
    }

    /// Returns whether the request has failed. A value that is not there, or that a condition
    /// leaves as it is, is no failure.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Success | Self::AuthContinue | Self::NotFound | Self::Exists | Self::NotStored)
    }
}
