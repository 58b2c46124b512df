//! Errors of the protocol, with memcached's texts where it has one.
//!
//! A change must keep memcached's texts, which clients compare, and must discard the data block of
//! a refused line, which would otherwise be parsed as commands.

/// A refused line or data block, and its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedLine {
    pub why: ProtocolError,
    /// Whether the client gets no reply, not even the error.
    pub noreply: bool,
    /// Number of bytes after the line that belong to it (its data block and CR LF) and are
    /// discarded.
    pub swallow: usize,
}

impl From<ProtocolError> for RefusedLine {
    fn from(why: ProtocolError) -> Self {
        Self { why, noreply: false, swallow: 0 }
    }
}

/// An error reply to a line or a data block, with memcached's text where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    Unknown,
    Format,
    Exptime,
    Delta,
    DeleteUsage,
    BadDataChunk,
    TenantUsage,
    BadClass,
    ShutdownMode,
    TooLarge,
    /// The connection closes after this error, as the start of the next command is unknown.
    LineTooLong,
    /// The line is a request of HTTP. It gets no reply, and the connection closes.
    HttpRequest,
    /// An error of a meta command.
    Meta(MetaError),
}

impl ProtocolError {
    /// Returns the reply, without its CR LF.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unknown | Self::HttpRequest => "ERROR",
            Self::Format => "CLIENT_ERROR bad command line format",
            Self::Exptime => "CLIENT_ERROR invalid exptime argument",
            Self::Delta => "CLIENT_ERROR invalid numeric delta argument",
            Self::DeleteUsage => "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
            Self::BadDataChunk => "CLIENT_ERROR bad data chunk",
            Self::TenantUsage => {
                "CLIENT_ERROR usage: tenant list | tenant set <name> [min|low|high|max|bandwidth]=<bytes> \
                 [requests|connections]=<number> deny=<command>,..."
            }
            Self::ShutdownMode => "CLIENT_ERROR invalid shutdown mode",
            Self::BadClass => "BADCLASS invalid class id",
            Self::TooLarge => "SERVER_ERROR object too large for cache",
            Self::LineTooLong => "CLIENT_ERROR line too long",
            Self::Meta(error) => error.text(),
        }
    }
}

/// The reason why a meta command is refused, with memcached's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaError {
    DuplicateFlag,
    InvalidFlag,
    /// The error of `md` and `ma` for each fault that the parser of flags finds. The number of
    /// flags, the length of the opaque and the mode of `ma` are checked separately.
    InvalidOrDuplicateFlag,
    Key,
    Token,
    /// A mode (flag `M`) that is not one character.
    ModeLength,
    Initial,
    Delta,
    Opaque,
    TooManyFlagsToGet,
    TooManyFlags,
    StoreMode,
    ArithmeticMode,
}

impl MetaError {
    /// Returns the reply, without its CR LF.
    pub fn text(self) -> &'static str {
        match self {
            Self::DuplicateFlag => "CLIENT_ERROR duplicate flag",
            Self::InvalidFlag => "CLIENT_ERROR invalid flag",
            Self::InvalidOrDuplicateFlag => "CLIENT_ERROR invalid or duplicate flag",
            Self::Key => "CLIENT_ERROR error decoding key",
            Self::Token => "CLIENT_ERROR bad token in command line format",
            Self::ModeLength => "CLIENT_ERROR incorrect length for M token",
            Self::Initial => "CLIENT_ERROR invalid numeric initial value",
            Self::Delta => "CLIENT_ERROR invalid numeric delta value",
            Self::Opaque => "CLIENT_ERROR opaque token too long",
            Self::TooManyFlagsToGet => "CLIENT_ERROR options flags are too long",
            Self::TooManyFlags => "CLIENT_ERROR options flags too long",
            Self::StoreMode => "CLIENT_ERROR invalid mode for ms M token",
            Self::ArithmeticMode => "CLIENT_ERROR invalid mode for ma M token",
        }
    }
}

impl From<MetaError> for RefusedLine {
    fn from(error: MetaError) -> Self {
        ProtocolError::Meta(error).into()
    }
}
