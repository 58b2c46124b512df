//! Errors of the protocol: why a line is not served, in memcached's own words where it has some.

/// A line that is not served, and the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedLine {
    pub why: ProtocolError,
    pub noreply: bool,
    /// Bytes behind the line that belong to it and must not be taken for commands.
    pub swallow: usize,
}

impl From<ProtocolError> for RefusedLine {
    fn from(why: ProtocolError) -> Self {
        Self { why, noreply: false, swallow: 0 }
    }
}

/// An error that a line is answered with, in memcached's own words where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    Unknown,
    Format,
    Exptime,
    Delta,
    DeleteUsage,
    BadDataChunk,
    TenantUsage,
    WatchEvictionsOnly,
    BadClass,
    TooLarge,
    /// The connection is closed after this one: nobody knows where the next command starts.
    LineTooLong,
    /// Of a meta command.
    Meta(MetaError),
}

impl ProtocolError {
    /// The reply line, without its line end.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unknown => "ERROR",
            Self::Format => "CLIENT_ERROR bad command line format",
            Self::Exptime => "CLIENT_ERROR invalid exptime argument",
            Self::Delta => "CLIENT_ERROR invalid numeric delta argument",
            Self::DeleteUsage => "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
            Self::BadDataChunk => "CLIENT_ERROR bad data chunk",
            Self::TenantUsage => "CLIENT_ERROR usage: tenant list | tenant set <name> [min|low|high|max]=<bytes>...",
            Self::WatchEvictionsOnly => "CLIENT_ERROR only evictions can be watched here",
            Self::BadClass => "BADCLASS invalid class id",
            Self::TooLarge => "SERVER_ERROR object too large for cache",
            Self::LineTooLong => "CLIENT_ERROR line too long",
            Self::Meta(error) => error.text(),
        }
    }
}

/// Why a meta command is refused, in memcached's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaError {
    DuplicateFlag,
    InvalidFlag,
    /// `md` and `ma` say no more than this.
    InvalidOrDuplicateFlag,
    Key,
    Token,
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
