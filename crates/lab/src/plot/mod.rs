//! Charts as a journal prints them: axes with units, 95 % intervals, and series that differ by line
//! and marker, so that they can be told apart in grey. A [`Chart`] is one panel; [`Panels`] are
//! stacked.

mod guides;
mod panels;
mod png;
mod svg;
#[cfg(test)]
mod tests;

use crate::table::Table;

pub use panels::{Boxes, Guide, Panel, Panels, Quartiles};
pub use png::png;
pub use svg::{panels_svg, svg};

/// Lays a figure out from its table.
pub type Draw = Box<dyn Fn(&Table) -> Panels + Send + Sync>;

/// Lays out a figure that is a single chart.
pub fn one_panel(chart: impl Fn(&Table) -> Chart + Send + Sync + 'static) -> Draw {
    Box::new(move |table| Panels::from(&chart(table)))
}

/// A figure of one panel, before it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// The chart's horizontal axis.
    pub x: Axis,
    /// The chart's vertical axis.
    pub y: Axis,
    /// The series, in the order of the legend.
    pub series: Vec<Series>,
}

/// A horizontal or vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity that it shows, and its unit.
    pub label: String,
    /// Values at both ends.
    pub range: (f64, f64),
    /// Distance between two labelled ticks; a logarithmic axis has its ticks at the powers of ten.
    pub step: f64,
    /// Whether it is logarithmic, base 10; both ends must then be positive.
    pub log: bool,
}

impl Axis {
    /// A linear axis with ticks at multiples of `step`.
    pub fn linear(label: &str, range: (f64, f64), step: f64) -> Axis {
        Axis { label: label.to_owned(), range, step, log: false }
    }

    /// A logarithmic axis with ticks at the powers of ten.
    pub fn log(label: &str, range: (f64, f64)) -> Axis {
        Axis { label: label.to_owned(), range, step: 1.0, log: true }
    }

    /// A linear axis from `from` to the first multiple of a round step beyond
    /// all `values`, with about five ticks.
    pub fn fitting(label: &str, from: f64, values: impl Iterator<Item = f64>) -> Axis {
        let top = values.filter(|v| v.is_finite()).fold(from + 1e-9, f64::max);
        let raw = (top - from) / 5.0;
        let decade = libm::pow(10.0, libm::floor(libm::log10(raw)));
        let nice = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * decade);
        let step = nice.into_iter().find(|&s| s >= raw * 0.999).unwrap_or(10.0 * decade);
        let to = from + libm::ceil((top - from) / step - 1e-9) * step;
        Axis::linear(label, (from, to), step)
    }

    /// Relative position of a value, 0 to 1 along the axis.
    fn place(&self, value: f64) -> f64 {
        let of = |v: f64| if self.log { libm::log10(v) } else { v };
        let (from, to) = (of(self.range.0), of(self.range.1));
        (of(value) - from) / (to - from)
    }

    /// Values and labels of the ticks.
    fn ticks(&self) -> Vec<(f64, String)> {
        if self.log {
            let exponents = libm::log10(self.range.0).round() as i32..;
            let powers = exponents.map(|e| (e, libm::pow(10.0, f64::from(e))));
            let within = powers.take_while(|(_, v)| *v <= self.range.1 * 1.000_1);
            let decimals = |e: i32| usize::try_from(-e).unwrap_or(0);
            return within.map(|(e, v)| (v, format!("{v:.*}", decimals(e)))).collect();
        }
        let decimals = (0..4).find(|&d| {
            let scaled = self.step * libm::pow(10.0, f64::from(d));
            (scaled - scaled.round()).abs() < 1e-6
        });
        let decimals = decimals.unwrap_or(4) as usize;
        let count = ((self.range.1 - self.range.0) / self.step + 1e-6).floor() as u32;
        let value = |k: u32| self.range.0 + f64::from(k) * self.step;
        (0..=count).map(|k| (value(k), format!("{:.decimals$}", value(k)))).collect()
    }
}

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Appearance of the line and its markers.
    pub style: Style,
    /// Points in ascending x; a NaN interrupts the line.
    pub points: Vec<Mark>,
}

/// One point of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Value on the horizontal axis.
    pub x: f64,
    /// Value on the vertical axis.
    pub y: f64,
    /// 95 % interval of `y`, if there is one, or the quartiles with [`Interval::Quartiles`]. A NaN,
    /// as that of a single run, is not drawn.
    pub interval: Option<(f64, f64)>,
}

impl Mark {
    /// The ends of a bar or band that can be drawn.
    fn ends(&self) -> Option<(f64, f64)> {
        self.interval.filter(|(low, high)| !low.is_nan() && !high.is_nan())
    }
}

/// Appearance of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Colour in the form `#rrggbb`.
    pub colour: &'static str,
    /// Lengths of dashes and gaps, as in SVG; empty for a solid line.
    pub dash: &'static str,
    /// Marker at each point.
    pub marker: Marker,
    /// Line width, in tenths of a pixel; 0 for markers that are not connected.
    pub width: u32,
    /// Representation of the intervals.
    pub interval: Interval,
    /// Whether a point's value holds until the next point, as a count's does,
    /// instead of a straight line between the two.
    pub step: bool,
}

/// Representation of intervals in a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// A bar at each point.
    Bars,
    /// A bar at each point from the first to the third quartile of the runs, which is no 95 %
    /// interval.
    Quartiles,
    /// A shaded band along the line.
    Band,
}

/// Shape that marks a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// No marker, for a curve.
    None,
    /// A circle filled with the curve's colour, ●.
    Circle,
    /// A square filled with the curve's colour, ■.
    Square,
    /// A triangle filled with the curve's colour, ▲.
    Triangle,
    /// A diamond filled with the curve's colour, ◆.
    Diamond,
    /// An open circle, ○, for a series to compare with.
    Ring,
}

impl Style {
    /// A black line, for a formula.
    pub const CURVE: Style = Style {
        colour: "#000000",
        dash: "",
        marker: Marker::None,
        width: 12,
        interval: Interval::Bars,
        step: false,
    };
    /// A dashed black line, for a second formula.
    pub const SECOND_CURVE: Style = Style { dash: "2 3", ..Style::CURVE };

    /// The `n`th of six styles that differ in hue, lightness, dash and, for the first four, marker
    /// (Okabe and Ito's colours, which the colour-blind can tell apart); they repeat after six.
    pub fn nth(n: usize) -> Style {
        let (colour, dash, marker) = [
            ("#0072b2", "", Marker::Circle),
            ("#d55e00", "8 4", Marker::Square),
            ("#009e73", "8 3 2 3", Marker::Triangle),
            ("#8f4a75", "3 3", Marker::Diamond),
            ("#000000", "1 2", Marker::Circle),
            ("#e69f00", "12 3 1 3", Marker::Square),
        ][n % 6];
        Style { colour, dash, marker, width: 18, interval: Interval::Bars, step: false }
    }

    /// The same style in light grey with rings, for a series to compare with.
    pub fn pale(self) -> Style {
        Style { colour: "#8c8c8c", marker: Marker::Ring, width: 12, ..self }
    }

    /// The same style without markers, and with a band for the interval: for many points.
    pub fn dense(self) -> Style {
        Style { marker: Marker::None, interval: Interval::Band, ..self }
    }

    /// The same style without a line: for values that don't follow each other.
    pub fn dots(self) -> Style {
        Style { width: 0, ..self }
    }

    /// The same style as a step line without markers: for values that hold for a while.
    pub fn stepped(self) -> Style {
        Style { marker: Marker::None, step: true, ..self }
    }
}
