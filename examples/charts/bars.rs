//! Horizontal bars: a name at the left of each row, the figure at the end of each bar.
//!
//! The picture's height follows the number of bars, and the left margin the longest name.
//!
//! A change must ensure that a bar's length depends only on its value and the scale.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::legend::Legend;
use super::{width_of, Drawn};

const WIDTH: i32 = 900;
/// The pixels from one bar to the next.
const BAR: i32 = 17;
const FONT: i32 = 12;
const MARGIN: i32 = 12;
/// The pixels below the bars: the numbers of the axis, and its unit.
const AXIS: i32 = 44;
const GREY: RGBColor = RGBColor(220, 220, 220);

/// A chart of bars.
pub struct Bars<'a> {
    pub title: &'a str,
    /// The unit of the axis.
    pub unit: &'a str,
    pub scale: Scale,
    pub series: Vec<(String, RGBColor)>,
    /// The name of each row, and its bars. A bar that is not finite is left out.
    pub rows: Vec<(String, Vec<Bar>)>,
}

/// A bar.
pub struct Bar {
    /// The index of its series, which decides its colour.
    pub series: usize,
    pub value: f64,
    /// The figure beside its end.
    pub text: String,
}

/// The scale of the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0.
    Linear,
    /// Logarithmic, from a power of ten that is at most half the least value.
    Decades,
}

/// The ends of an axis, and its ticks with their texts.
struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    fn new(scale: Scale, values: &[f64]) -> Self {
        let most = values.iter().copied().fold(0.0, f64::max);
        match scale {
            Scale::Linear => {
                let most = if most > 0.0 { most } else { 1.0 };
                // Steps of 1, 2 or 5 times a power of ten, of which 5 to 13 make the axis.
                let power = 10_f64.powf((most / 5.0).log10().floor());
                let step = power * [1.0, 2.0, 5.0].into_iter().rfind(|n| n * power <= most / 5.0).unwrap_or(1.0);
                let decimals = (-step.log10().floor()).max(0.0) as usize;
                let count = (most / step).ceil() as u32;
                let tick = |n| (f64::from(n) * step, format!("{:.decimals$}", f64::from(n) * step));
                Self { scale, from: 0.0, to: f64::from(count) * step, ticks: (0..=count).map(tick).collect() }
            }
            Scale::Decades => {
                // A value of 0 has no logarithm: its bar is one pixel long.
                let least = values.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
                let (least, most) = if least.is_finite() { (least, most) } else { (1.0, 10.0) };
                // The least bar has a length that can be seen.
                let from = (least / 2.0).log10().floor() as i32;
                let to = (most.log10().ceil() as i32).max(from + 1);
                let tick =
                    |power: i32| (10_f64.powi(power), format!("{:.*}", (-power).max(0) as usize, 10_f64.powi(power)));
                Self { scale, from: 10_f64.powi(from), to: 10_f64.powi(to), ticks: (from..=to).map(tick).collect() }
            }
        }
    }

    /// Returns the place of a value on the axis, as a part of its length.
    fn part(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value.max(0.0) / self.to,
            Scale::Decades => (value.max(self.from) / self.from).log10() / (self.to / self.from).log10(),
        }
    }
}

impl Bars<'_> {
    /// Draws into an SVG file.
    pub fn draw(&self, file: &Path) -> Drawn {
        let bars = || self.rows.iter().flat_map(|row| &row.1).filter(|bar| bar.value.is_finite());
        let axis = Axis::new(self.scale, &bars().map(|bar| bar.value).collect::<Vec<_>>());
        let legend = Legend { title: self.title, series: if self.series.len() > 1 { &self.series } else { &[] } };
        let longest = |texts: &mut dyn Iterator<Item = &str>| texts.map(|text| width_of(text, FONT)).max().unwrap_or(0);
        let left = MARGIN + longest(&mut self.rows.iter().map(|row| row.0.as_str())) + 8;
        let right = WIDTH - MARGIN - longest(&mut bars().map(|bar| bar.text.as_str())) - 8;
        let top = legend.height(WIDTH) + 4;
        let slots: i32 = self.rows.iter().map(|row| row.1.len() as i32 * BAR + BAR / 2).sum();
        let bottom = top + slots;

        let root = SVGBackend::new(file, (WIDTH as u32, (bottom + AXIS) as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        legend.draw(&root)?;
        let x = |value: f64| left + (axis.part(value) * f64::from(right - left)).round() as i32;
        let font = ("sans-serif", FONT).into_text_style(&root);
        let below = font.clone().pos(Pos::new(HPos::Center, VPos::Top));
        let mut free_from = 0;
        for (value, text) in &axis.ticks {
            let at = x(*value);
            root.draw(&PathElement::new([(at, top), (at, bottom)], GREY))?;
            let half = width_of(text, FONT) / 2;
            if at - half >= free_from {
                root.draw(&Text::new(text.clone(), (at, bottom + 5), below.clone()))?;
                free_from = at + half + 6;
            }
        }
        root.draw(&Text::new(self.unit.to_owned(), ((left + right) / 2, bottom + 5 + FONT + 6), below))?;

        let name = font.clone().pos(Pos::new(HPos::Right, VPos::Center));
        let figure = font.pos(Pos::new(HPos::Left, VPos::Center));
        let mut y = top + BAR / 4;
        for (text, bars) in &self.rows {
            let middle = y + bars.len() as i32 * BAR / 2;
            root.draw(&Text::new(text.clone(), (left - 8, middle), name.clone()))?;
            for bar in bars {
                if bar.value.is_finite() {
                    let end = x(bar.value).max(left + 1);
                    let colour = self.series[bar.series].1;
                    root.draw(&Rectangle::new([(left, y + 1), (end, y + BAR - 1)], colour.filled()))?;
                    root.draw(&Text::new(bar.text.clone(), (end + 5, y + BAR / 2), figure.clone()))?;
                }
                y += BAR;
            }
            y += BAR / 2;
        }
        root.present()?;
        Ok(())
    }
}
