//! Figures with more than one panel, and what a panel may hold beside lines.

use super::{Axis, Chart, Series, Style};
use trunkline_base::stats::quantile;

/// A figure of panels under each other with one horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Panels {
    /// The line above the figure.
    pub title: String,
    /// The horizontal axis of all panels.
    pub x: Axis,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
    /// Vertical lines through all panels, at places of the horizontal axis, with
    /// their labels above the first panel.
    pub guides: Vec<Guide>,
}

/// A plot with a vertical axis of its own in [`Panels`].
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The vertical axis.
    pub y: Axis,
    /// Lines, in the order of the legend.
    pub series: Vec<Series>,
    /// Boxes, behind the lines and after them in the legend.
    pub boxes: Vec<Boxes>,
    /// Horizontal lines at places of the vertical axis, with their labels within the
    /// panel.
    pub guides: Vec<Guide>,
}

impl Panel {
    /// A panel with lines alone.
    pub fn new(y: Axis, series: Vec<Series>) -> Panel {
        Panel { y, series, boxes: Vec::new(), guides: Vec::new() }
    }
}

impl From<&Chart> for Panels {
    fn from(chart: &Chart) -> Panels {
        let Chart { title, x, y, series } = chart.clone();
        Panels { title, x, panels: vec![Panel::new(y, series)], guides: Vec::new() }
    }
}

/// A line at one place of an axis, and what is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Guide {
    /// The place; one outside of the axis is not drawn.
    pub at: f64,
    /// What is there, in about 30 characters at most.
    pub label: String,
}

/// Distributions as boxes, one at each place.
#[derive(Clone, Debug, PartialEq)]
pub struct Boxes {
    /// What the legend calls them.
    pub name: String,
    /// Of which only the colour counts.
    pub style: Style,
    /// The distributions, in any order.
    pub boxes: Vec<Quartiles>,
}

/// A distribution: a box from the first to the third quartile, a line at the
/// median, and whiskers to the least and the greatest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// Where the box stands on the horizontal axis.
    pub x: f64,
    /// Minimum, the three quartiles, and maximum.
    pub values: [f64; 5],
}

impl Quartiles {
    /// Of some values at `x`; what is not a number doesn't count. `None` if nothing
    /// is left. A quartile is the least value that so many don't exceed.
    pub fn of(x: f64, values: impl IntoIterator<Item = f64>) -> Option<Quartiles> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|v| !v.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&least, &greatest) = (sorted.first()?, sorted.last()?);
        let at = |share| quantile(&sorted, share);
        Some(Quartiles { x, values: [least, at(0.25)?, at(0.5)?, at(0.75)?, greatest] })
    }
}
