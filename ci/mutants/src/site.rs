//! The place of a mutant in the syntax tree, and the edit that makes it switchable.
//!
//! Only expressions, function bodies and match arms can be switched at run time; other mutants are
//! reported as `cannot`.
//!
//! A change must ensure that an inactive mutant evaluates the original code once, and nothing else.

use crate::edit::{Edit, Edits};
use serde_json::Value;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The part of the text that a mutant changes, as ranges of bytes.
pub enum Site {
    /// The statements of a function's body.
    Body(Range<usize>),
    Binary { whole: Range<usize>, left: Range<usize>, right: Range<usize>, op: Range<usize> },
    Unary { whole: Range<usize>, operand: Range<usize> },
    Guard(Range<usize>),
    /// A match arm: the end of its pattern, and its guard if it has one.
    Arm { pattern_end: usize, guard: Option<Range<usize>> },
}

impl Site {
    /// Returns the edit that replaces the original by `by` while the expression `on` is true.
    pub fn edits(self, on: &str, by: &str, source: &str) -> Edit {
        match self {
            Self::Body(at) => Edit { at: at.start..at.start, by: format!("if {on} {{ return {by}; }} ") },
            Self::Binary { whole, left, right, op } => {
                let (left, right, op) = (&source[left], &source[right], &source[op]);
                Edit { at: whole, by: format!("(if {on} {{ {left} {by} {right} }} else {{ {left} {op} {right} }})") }
            }
            Self::Unary { whole, operand } => {
                let (all, operand) = (&source[whole.clone()], &source[operand]);
                Edit { at: whole, by: format!("(if {on} {{ {operand} }} else {{ {all} }})") }
            }
            Self::Guard(at) if by == "true" => {
                let by = format!("({on} || ({}))", &source[at.clone()]);
                Edit { at, by }
            }
            Self::Guard(at) => {
                let by = format!("(!{on} && ({}))", &source[at.clone()]);
                Edit { at, by }
            }
            Self::Arm { guard: Some(at), .. } => {
                let by = format!("(!{on} && ({}))", &source[at.clone()]);
                Edit { at, by }
            }
            Self::Arm { pattern_end, guard: None } => Edit { at: pattern_end..pattern_end, by: format!(" if !{on}") },
        }
    }
}

/// Returns the place of a mutant; `None` if its kind or its place cannot be switched at run time.
pub fn find(tree: &syn::File, edits: &Edits<'_>, mutant: &Value) -> Option<Site> {
    let number = |end: &str, what: &str| Some(mutant["span"][end][what].as_u64()? as usize);
    let start = edits.byte(number("start", "line")?, number("start", "column")? - 1);
    let end = edits.byte(number("end", "line")?, number("end", "column")? - 1);
    let mut finder = Finder { edits, at: start..end, genre: mutant["genre"].as_str()?, site: None };
    if finder.genre == "FnValue" {
        return Some(Site::Body(start..end));
    }
    finder.visit_file(tree);
    finder.site
}

struct Finder<'a> {
    edits: &'a Edits<'a>,
    at: Range<usize>,
    genre: &'a str,
    site: Option<Site>,
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        let op = self.edits.range(it.op.span());
        if self.genre == "BinaryOperator" && op == self.at {
            self.site = Some(Site::Binary {
                whole: self.edits.range(it.span()),
                left: self.edits.range(it.left.span()),
                right: self.edits.range(it.right.span()),
                op,
            });
        }
        visit::visit_expr_binary(self, it);
    }

    fn visit_expr_unary(&mut self, it: &'ast syn::ExprUnary) {
        if self.genre == "UnaryOperator" && self.edits.range(it.op.span()) == self.at {
            self.site =
                Some(Site::Unary { whole: self.edits.range(it.span()), operand: self.edits.range(it.expr.span()) });
        }
        visit::visit_expr_unary(self, it);
    }

    fn visit_arm(&mut self, it: &'ast syn::Arm) {
        let guard = it.guard.as_ref().map(|(_, guard)| self.edits.range(guard.span()));
        match self.genre {
            "MatchArmGuard" if guard.as_ref() == Some(&self.at) => self.site = guard.map(Site::Guard),
            "MatchArm" if self.edits.range(it.span()).start == self.at.start => {
                self.site = Some(Site::Arm { pattern_end: self.edits.range(it.pat.span()).end, guard });
            }
            _ => {}
        }
        visit::visit_arm(self, it);
    }
}
