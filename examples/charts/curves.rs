//! Curves over two axes that end where the data ends.
//!
//! The legend is above the chart, because a curve may be anywhere in it.
//!
//! A change must ensure that the axes cover all points and little more.

use std::path::Path;

use plotters::prelude::*;

use super::legend::Legend;
use super::{Drawn, COLOURS};

const SIZE: (u32, u32) = (860, 500);
/// The space above the greatest value of a linear axis, as a part of that value.
const BEYOND: f64 = 0.05;

/// A chart of curves.
pub struct Curves<'a> {
    pub title: &'a str,
    /// The quantity and unit of the horizontal axis.
    pub x: &'a str,
    /// The quantity and unit of the vertical axis.
    pub y: &'a str,
    /// Whether the vertical axis is logarithmic; it begins at 0 if it is not.
    pub decades: bool,
    pub curves: Vec<Curve>,
}

/// A curve, by its points from left to right.
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Curves<'_> {
    /// Draws into an SVG file.
    pub fn draw(&self, file: &Path) -> Drawn {
        let series: Vec<_> = self
            .curves
            .iter()
            .zip(COLOURS.iter().cycle())
            .map(|(curve, colour)| (curve.name.clone(), *colour))
            .collect();
        let legend = Legend { title: self.title, series: if series.len() > 1 { &series } else { &[] } };
        let points = || self.curves.iter().flat_map(|curve| curve.points.iter().copied());
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MIN_POSITIVE, f64::max);
        let (right, top) = (most(&mut points().map(|point| point.0)), most(&mut points().map(|point| point.1)));
        let left = points().map(|point| point.0).fold(right, f64::min);

        let root = SVGBackend::new(file, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        legend.draw(&root)?;
        let (_, below) = root.split_vertically(legend.height(SIZE.0 as i32));
        let mut builder = ChartBuilder::on(&below);
        builder.margin(12).margin_right(36).x_label_area_size(44).y_label_area_size(84);
        if self.decades {
            let least = points().map(|point| point.1).filter(|y| *y > 0.0).fold(top, f64::min);
            let bottom = 10_f64.powf(least.log10().floor());
            let mut chart = builder.build_cartesian_2d(left..right, (bottom..top.max(bottom * 10.0)).log_scale())?;
            chart.configure_mesh().x_desc(self.x).y_desc(self.y).draw()?;
            for (curve, (_, colour)) in self.curves.iter().zip(&series) {
                let points = curve.points.iter().map(|(x, y)| (*x, y.max(bottom)));
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
            }
        } else {
            let mut chart = builder.build_cartesian_2d(left..right, 0.0..top * (1.0 + BEYOND))?;
            chart.configure_mesh().x_desc(self.x).y_desc(self.y).draw()?;
            for (curve, (_, colour)) in self.curves.iter().zip(&series) {
                chart.draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)))?;
            }
        }
        root.present()?;
        Ok(())
    }
}
