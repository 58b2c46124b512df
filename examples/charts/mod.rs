//! Charts as SVG files, for the examples' `--plot` and for the comparison with other caches.
//!
//! | module | content |
//! |---|---|
//! | `bars` | horizontal bars with their names and figures |
//! | `curves` | lines over two axes |
//! | `legend` | the colours of the series, in a strip above the chart |
//!
//! A change must ensure that no text covers a bar, a line or another text: `ci/plots.sh` checks it.

#![allow(dead_code, unused_imports, reason = "each example draws one kind of chart")]

pub mod bars;
pub mod curves;
mod legend;

use std::error::Error;

use plotters::prelude::*;

pub use bars::{Bar, Bars, Scale};
pub use curves::{Curve, Curves};

/// The colours of series, in their order.
pub const COLOURS: [RGBColor; 5] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
];

/// The width of a character of a wide sans-serif font, as a part of the font size; not less than
/// the mean width with which `ci/tools/plots.py` looks for overlaps.
const CHARACTER: f64 = 0.6;

type Drawn = Result<(), Box<dyn Error>>;

/// Returns the pixels that a text takes at most.
fn width_of(text: &str, size: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * CHARACTER).ceil() as i32
}

/// Breaks a text between words into lines that fit into `width` pixels.
fn lines_of(text: &str, size: i32, width: i32) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("the vector has a first line");
        if line.is_empty() {
            line.push_str(word);
        } else if width_of(line, size) + width_of(word, size) + size <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
