//! Figures with more than one panel, and the elements of a panel other than lines.

use super::{Axis, Chart, Series, Style};
use trunkline_base::stats::quantile;

/// A figure of stacked panels with a common horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Panels {
    /// Title above the figure.
    pub title: String,
    /// The horizontal axis of all panels.
    pub x: Axis,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
    /// Vertical lines through all panels, at positions on the horizontal axis, with their labels
    /// above the first panel.
    pub guides: Vec<Guide>,
}

/// A plot in [`Panels`] with its own vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The panel's vertical axis.
    pub y: Axis,
    /// Lines, in the order of the legend.
    pub series: Vec<Series>,
    /// Boxes, drawn behind the lines and listed after them in the legend.
    pub boxes: Vec<Boxes>,
    /// Horizontal lines at positions on the vertical axis, with their labels within the panel.
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

/// A labelled line at one position of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Guide {
    /// The position; one outside of the axis is not drawn.
    pub at: f64,
    /// The label, of about 30 characters at most.
    pub label: String,
}

/// Distributions as boxes, one at each position.
#[derive(Clone, Debug, PartialEq)]
pub struct Boxes {
    /// Name in the legend.
    pub name: String,
    /// Style, of which only the colour is used.
    pub style: Style,
    /// The distributions, in any order of their positions.
    pub boxes: Vec<Quartiles>,
}

/// A distribution: a box from the first to the third quartile, a line at the median, and whiskers
/// to the minimum and the maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// Position of the box on the horizontal axis.
    pub x: f64,
    /// Minimum, the three quartiles, and maximum.
    pub values: [f64; 5],
}

impl Quartiles {
    /// Quartiles of some values at `x`, without NaNs; `None` if no values remain. A quartile is the
    /// smallest value that this share of the values doesn't exceed.
    pub fn of(x: f64, values: impl IntoIterator<Item = f64>) -> Option<Quartiles> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|v| !v.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&least, &greatest) = (sorted.first()?, sorted.last()?);
        let at = |share| quantile(&sorted, share);
        Some(Quartiles { x, values: [least, at(0.25)?, at(0.5)?, at(0.75)?, greatest] })
    }
}
