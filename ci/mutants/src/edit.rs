//! Edits of one file's text. No two of them overlap.
//!
//! Mutants whose edits overlap cannot be in one build; `try_add` refuses the later one.
//!
//! A change must ensure that accepted edits do not overlap, and that insertions at one byte keep
//! their order.

use std::ops::Range;

/// The replacement of a range of bytes by a text.
pub struct Edit {
    pub at: Range<usize>,
    pub by: String,
}

pub struct Edits<'a> {
    source: &'a str,
    /// The byte at which each line begins.
    lines: Vec<usize>,
    edits: Vec<Edit>,
}

impl<'a> Edits<'a> {
    pub fn new(source: &'a str) -> Self {
        let lines = std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { source, lines, edits: Vec::new() }
    }

    /// Returns the byte at a line (from 1) and a column (in characters, from 0).
    pub fn byte(&self, line: usize, column: usize) -> usize {
        let start = self.lines[line - 1];
        let rest = &self.source[start..];
        start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at)
    }

    pub fn range(&self, span: proc_macro2::Span) -> Range<usize> {
        let (start, end) = (span.start(), span.end());
        self.byte(start.line, start.column)..self.byte(end.line, end.column)
    }

    /// Adds the edit, unless it overlaps with another one.
    pub fn try_add(&mut self, new: Edit) -> bool {
        // An empty range is an insertion, which overlaps a replacement only strictly inside of the
        // replaced range.
        let overlaps = |old: &Edit| match (old.at.is_empty(), new.at.is_empty()) {
            (true, true) => false,
            (false, true) => old.at.start < new.at.start && new.at.start < old.at.end,
            (true, false) => new.at.start < old.at.start && old.at.start < new.at.end,
            (false, false) => old.at.start < new.at.end && new.at.start < old.at.end,
        };
        let is_free = !self.edits.iter().any(overlaps);
        if is_free {
            self.edits.push(new);
        }
        is_free
    }

    pub fn apply(mut self) -> String {
        // Insertions come before a replacement that begins at the same byte.
        self.edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
        let (mut text, mut done) = (String::new(), 0);
        for Edit { at, by } in self.edits {
            text.push_str(&self.source[done..at.start]);
            text.push_str(&by);
            done = at.end;
        }
        text.push_str(&self.source[done..]);
        text
    }
}
