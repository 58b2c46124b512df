//! What one line of an index tells.

/// From [`Index::near`](crate::Index::near).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near<T> {
    /// It is there.
    Found(T),
    /// It is nowhere.
    Nothing,
    /// It is not where it should be, and may be elsewhere, as some are that should be there.
    Further,
}
