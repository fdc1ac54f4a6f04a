//! Plots as SVG. Colours come from the page, so that they follow its dark mode; dashes and shapes
//! distinguish the services in grey.

use super::super::score::{Heard, Run, ms};
use super::super::traffic::{Kind, Packet};
use super::{DEADLINE, title};
use kuva::plot::line::LineStyle;
use kuva::plot::scatter::MarkerShape;
use kuva::prelude::{
    Layout, LegendPosition, LinePlot, Plot, ScatterPlot, Theme, TickFormat, render_to_svg,
};
use std::sync::Arc;

/// Delays of a service's arrived packets in ascending order, in milliseconds, and the number sent.
pub struct Delays {
    sorted: Vec<f64>,
    sent: usize,
}

impl Delays {
    pub fn of<'a>(packets: impl Iterator<Item = &'a Packet>) -> Delays {
        let took: Vec<Option<f64>> =
            packets.map(|p| Some(ms(p.arrival?.at.since(p.sent?)))).collect();
        let mut sorted: Vec<f64> = took.iter().copied().flatten().collect();
        sorted.sort_by(f64::total_cmp);
        Delays { sorted, sent: took.len() }
    }

    /// Percentage of the packets that have not arrived within `ms`.
    fn missing(&self, ms: f64) -> f64 {
        let arrived = self.sorted.partition_point(|took| *took <= ms);
        (self.sent - arrived) as f64 / self.sent.max(1) as f64 * 100.0
    }
}

fn color(kind: Kind) -> String {
    format!("var(--{})", kind.name())
}

fn layout(plots: &[Plot], width: f64, height: f64) -> Layout {
    let ink = || "var(--ink)".to_owned();
    let theme = Theme {
        background: "none".into(),
        axis_color: ink(),
        tick_color: ink(),
        text_color: ink(),
        grid_color: "var(--grid)".into(),
        legend_bg: "var(--paper)".into(),
        legend_border: "none".into(),
        font_family: Some("inherit".into()),
        ..Theme::light()
    };
    Layout::auto_from_plots(plots)
        .with_theme(theme)
        .with_width(width)
        .with_height(height)
        .with_tick_size(13)
        .with_label_size(14)
        .with_body_size(13)
}

/// Step of the delay axis, in milliseconds.
const STEP: f64 = 0.1;

/// Plots the share of packets still missing against time. Packets lost for good stay above the
/// axis; the curve falls where recovery delivers.
pub fn delays(services: &[Delays; Kind::ALL.len()], runs: &[Run], width: f64) -> String {
    let deadline = ms(DEADLINE);
    let quickest =
        services.iter().filter_map(|d| d.sorted.first()).copied().fold(deadline, f64::min);
    let from = ((quickest - 5.0) / 10.0).floor().max(0.0) * 10.0;
    let late = |d: &Delays| d.sorted.get(d.sorted.len() * 999 / 1000).copied().unwrap_or(0.0);
    let to = services.iter().map(late).fold(deadline * 1.25, f64::max).min(deadline * 10.0);
    // The decade below the last step of the best service, or below one packet.
    let last = |d: &Delays| d.missing(to).max(70.0 / d.sent.max(1) as f64);
    let lowest = services.iter().map(last).fold(100.0, f64::min);
    let floor = 10f64.powf((lowest * 0.9).log10().floor());
    let mut plots: Vec<Plot> = (0..Kind::ALL.len())
        .map(|i| {
            let steps = ((to - from) / STEP) as usize;
            let mut points: Vec<(f64, f64)> = Vec::new();
            for x in (0..=steps).map(|k| from + k as f64 * STEP) {
                let y = services[i].missing(x).max(floor);
                // A flat stretch needs only its two ends.
                if let [.., (_, a), (_, b)] = points[..]
                    && a == b
                    && b == y
                {
                    points.pop();
                }
                points.push((x, y));
            }
            let style = match Kind::ALL[i] {
                Kind::BestEffort => LineStyle::Dashed,
                Kind::Once => LineStyle::DashDot,
                Kind::Trunk => LineStyle::Dotted,
                Kind::Udp | Kind::RealTime => LineStyle::Solid,
            };
            let name = title(Kind::ALL[i]);
            LinePlot::new()
                .with_data(points)
                .with_color(color(Kind::ALL[i]))
                .with_line_style(style)
                .with_stroke_width(if Kind::ALL[i] == Kind::RealTime { 3.0 } else { 1.5 })
                .with_legend(format!("{name}: {:.2} % missed", runs[i].missed_percent))
                .into()
        })
        .collect();
    plots.push(
        LinePlot::new()
            .with_data(vec![(deadline, floor), (deadline, 100.0)])
            .with_color("var(--ink)")
            .with_line_style(LineStyle::Dotted)
            .with_legend(format!("deadline, {deadline} ms"))
            .into(),
    );
    let percent = |y: f64| format!("{} %", (y * 1e6).round() / 1e6);
    let layout = layout(&plots, width, 380.0)
        .with_legend_position(LegendPosition::InsideBottomLeft)
        .with_log_y()
        .with_x_axis_min(from)
        .with_x_axis_max(to)
        .with_y_axis_min(floor)
        .with_y_axis_max(100.0)
        .with_x_label("ms after being sent")
        .with_y_label("packets not there yet")
        .with_y_tick_format(TickFormat::Custom(Arc::new(percent)));
    render_to_svg(plots, layout)
}

/// Plots the score of every segment, by service.
pub fn pesq(heard: &[Heard], runs: &[Run], width: f64) -> String {
    let mut plots: Vec<Plot> = Vec::new();
    let shapes = [
        MarkerShape::Cross,
        MarkerShape::Square,
        MarkerShape::Triangle,
        MarkerShape::Circle,
        MarkerShape::Diamond,
    ];
    for (i, kind) in Kind::ALL.into_iter().enumerate() {
        // The last row is at the top.
        let row = i as f64 + 1.0;
        let of_kind = heard.iter().filter(|h| h.kind == kind);
        let scores = of_kind.flat_map(|h| h.scores.iter().flatten().map(|s| s.raw));
        // Spread the points over the row, so that equal scores do not hide each other.
        let spread = |(n, raw): (usize, f64)| (raw, row + ((n * 5 % 13) as f64 / 12.0 - 0.5) * 0.5);
        let points = ScatterPlot::new()
            .with_data(scores.enumerate().map(spread).collect::<Vec<_>>())
            .with_color(color(kind))
            .with_marker(shapes[i])
            .with_size(4.0)
            .with_marker_opacity(0.65);
        plots.push(points.into());
        let Some(pesq) = &runs[i].pesq else { continue };
        for (at, style, what) in
            [(pesq.mean, LineStyle::Solid, "mean"), (pesq.p5, LineStyle::Dotted, "5th percentile")]
        {
            let mut mark = LinePlot::new()
                .with_data(vec![(at, row - 0.4), (at, row + 0.4)])
                .with_color("var(--ink)")
                .with_line_style(style)
                .with_stroke_width(2.5);
            if i == 0 {
                mark = mark.with_legend(what);
            }
            plots.push(mark.into());
        }
    }
    let scores = heard.iter().flat_map(|h| h.scores.iter().flatten().map(|s| s.raw));
    let lowest = scores.fold(3.0, f64::min);
    let name = |y: f64| {
        let row = Kind::ALL.get((y.round() as usize).wrapping_sub(1));
        row.filter(|_| (y - y.round()).abs() < 0.01).map_or(String::new(), |k| title(*k).to_owned())
    };
    let layout = layout(&plots, width, 400.0)
        .with_legend_position(LegendPosition::OutsideBottomColumns)
        .with_x_axis_min((lowest * 2.0).floor() / 2.0)
        .with_x_axis_max(4.5)
        .with_x_tick_step(0.5)
        .with_y_axis_min(0.5)
        .with_y_axis_max(Kind::ALL.len() as f64 + 0.5)
        .with_y_tick_step(1.0)
        .with_x_tick_format(TickFormat::Fixed(1))
        .with_y_tick_format(TickFormat::Custom(Arc::new(name)))
        .with_x_label("raw PESQ score, -0.5 to 4.5");
    render_to_svg(plots, layout)
}
