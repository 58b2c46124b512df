//! A strip above the chart: the title, and a square with a name for each series.
//!
//! The strip is outside of the chart, so that it covers nothing.
//!
//! A change must ensure that `height` and `draw` break the same lines.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{lines_of, width_of, Drawn};

/// The font size of the title.
const TITLE: i32 = 15;
/// The font size of the names.
const NAME: i32 = 12;
const SQUARE: i32 = 10;
const GAP: i32 = 22;
const MARGIN: i32 = 12;

/// The title and the series of a chart.
pub struct Legend<'a> {
    pub title: &'a str,
    /// Empty: no squares are drawn.
    pub series: &'a [(String, RGBColor)],
}

impl Legend<'_> {
    /// Returns the pixels that the strip takes at this width of the picture.
    pub fn height(&self, width: i32) -> i32 {
        let rows = self.places(width).last().map_or(0, |place| place.1 + 1);
        MARGIN + self.title_lines(width).len() as i32 * (TITLE + 4) + rows * (NAME + 8)
    }

    /// Draws the strip at the top of `root`.
    pub fn draw<B: DrawingBackend>(&self, root: &DrawingArea<B, Shift>) -> Drawn
    where
        B::ErrorType: 'static,
    {
        let width = root.dim_in_pixel().0 as i32;
        let lines = self.title_lines(width);
        let title = ("sans-serif", TITLE).into_text_style(root).pos(Pos::new(HPos::Center, VPos::Top));
        for (row, line) in lines.iter().enumerate() {
            let y = MARGIN + row as i32 * (TITLE + 4);
            root.draw(&Text::new(line.clone(), (width / 2, y), title.clone()))?;
        }
        let name = ("sans-serif", NAME).into_text_style(root).pos(Pos::new(HPos::Left, VPos::Center));
        for ((text, colour), (x, row)) in self.series.iter().zip(self.places(width)) {
            let middle = MARGIN + lines.len() as i32 * (TITLE + 4) + row * (NAME + 8) + NAME / 2;
            let corners = [(x, middle - SQUARE / 2), (x + SQUARE, middle + SQUARE / 2)];
            root.draw(&Rectangle::new(corners, colour.filled()))?;
            root.draw(&Text::new(text.clone(), (x + SQUARE + 5, middle), name.clone()))?;
        }
        Ok(())
    }

    fn title_lines(&self, width: i32) -> Vec<String> {
        lines_of(self.title, TITLE, width - 2 * MARGIN)
    }

    /// Returns the left end and the row of each series.
    fn places(&self, width: i32) -> Vec<(i32, i32)> {
        let (mut x, mut row) = (MARGIN, 0);
        let place = |(text, _): &(String, RGBColor)| {
            let wide = SQUARE + 5 + width_of(text, NAME);
            if x > MARGIN && x + wide > width - MARGIN {
                (x, row) = (MARGIN, row + 1);
            }
            let place = (x, row);
            x += wide + GAP;
            place
        };
        self.series.iter().map(place).collect()
    }
}
