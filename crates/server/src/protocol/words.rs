//! Words of a line, split at spaces.
//!
//! No allocation, and no other blanks than spaces: a tab belongs to a key.

use crate::find_byte::find_byte;

/// Iterator over the words of a line. As in memcached, only spaces separate words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words<'a> {
    line: &'a [u8],
}

impl<'a> Words<'a> {
    /// Returns the words of `line`.
    pub fn of(line: &'a [u8]) -> Self {
        Self { line }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.line.iter().position(|&b| b != b' ')?;
        let line = &self.line[start..];
        let end = find_byte(b' ', line).unwrap_or(line.len());
        self.line = &line[end..];
        Some(&line[..end])
    }
}
