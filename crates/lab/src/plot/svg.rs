//! Draws figures as SVG.

use super::guides;
use super::{Axis, Boxes, Chart, Interval, Mark, Marker, Panel, Panels, Series, Style};
use std::fmt::Write as _;

/// Width of the drawing, in pixels.
pub(super) const WIDTH: f64 = 860.0;
/// Left end of the frames within it; the legend is to their right.
pub(super) const LEFT: f64 = 72.0;
pub(super) const RIGHT: f64 = 610.0;
const TOP: f64 = 44.0;
/// Space below the last frame, for its axis.
const FOOT: f64 = 60.0;
/// Heights of a frame that is alone, of one of two and of one of many, and the gap between two.
const ALONE: f64 = 396.0;
const ONE_OF_TWO: f64 = 280.0;
const ONE_OF_MANY: f64 = 150.0;
const GAP: f64 = 18.0;
const LEGEND: f64 = RIGHT + 18.0;
const LEGEND_LINE: f64 = 22.0;
/// Characters in a line of the legend, and 12 pixels for each line of text.
const LEGEND_CHARS: usize = 24;
/// Half the size of a marker, in pixels.
const R: f64 = 4.0;
/// Half the width of a box, in pixels.
const BOX: f64 = 7.0;
/// White outline that separates a text from what is drawn behind it.
pub(super) const HALO: &str = " stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"";

/// Position of a panel, and its axes.
pub(super) struct Frame<'a> {
    pub top: f64,
    pub bottom: f64,
    pub x: &'a Axis,
    pub y: &'a Axis,
}

impl Frame<'_> {
    /// Pixel coordinates of a point.
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        // Values far outside must not become infinite numbers.
        let place = |p: f64| p.clamp(-0.5, 1.5);
        (
            LEFT + place(self.x.place(x)) * (RIGHT - LEFT),
            self.bottom - place(self.y.place(y)) * (self.bottom - self.top),
        )
    }
}

/// Draws a chart; equal charts give equal bytes.
pub fn svg(chart: &Chart) -> String {
    panels_svg(&Panels::from(chart))
}

/// Draws a figure of some panels; equal figures give equal bytes.
pub fn panels_svg(figure: &Panels) -> String {
    let place = |at: f64| LEFT + figure.x.place(at) * (RIGHT - LEFT);
    let inside = figure.guides.iter().filter(|g| (0.0..=1.0).contains(&figure.x.place(g.at)));
    let guides: Vec<(f64, &str)> = inside.map(|g| (place(g.at), g.label.as_str())).collect();
    // The first row is between the title and the frame.
    let (_, rows) = guides::rows(&guides);
    let top = TOP + rows.saturating_sub(1) as f64 * guides::ROW;
    let tall = match figure.panels.len() {
        1 => ALONE,
        2 => ONE_OF_TWO,
        _ => ONE_OF_MANY,
    };
    let frames: Vec<Frame<'_>> = figure
        .panels
        .iter()
        .zip(0u32..)
        .map(|(panel, n)| {
            let top = top + f64::from(n) * (tall + GAP);
            Frame { top, bottom: top + tall, x: &figure.x, y: &panel.y }
        })
        .collect();
    let height = frames.last().map_or(top, |last| last.bottom) + FOOT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"'DejaVu Sans', Verdana, sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        title = escape(&figure.title)
    );
    for (n, (panel, frame)) in figure.panels.iter().zip(&frames).enumerate() {
        let titles = Titles {
            above: (n == 0).then_some(&figure.title),
            below: (n + 1 == frames.len()).then_some(&figure.x.label),
        };
        axes(frame, titles, &mut out);
        content(figure, panel, frame, n, &mut out);
        guides::vertical(&mut out, &guides, frame, n == 0);
        guides::horizontal(&mut out, &panel.guides, frame);
    }
    legends(figure, &frames, &mut out);
    out.push_str("</svg>\n");
    out
}

/// Draws the content of a panel, within its frame.
fn content(figure: &Panels, panel: &Panel, frame: &Frame<'_>, n: usize, out: &mut String) {
    // A clip's name must be unique in a page that holds many figures.
    let clip = crate::experiment::fnv1a(figure.title.bytes());
    let clip = match n {
        0 => format!("frame-{clip:016x}"),
        n => format!("frame-{clip:016x}-{n}"),
    };
    let _ = write!(
        out,
        "<clipPath id=\"{clip}\"><rect x=\"{LEFT}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>\n\
         <g clip-path=\"url(#{clip})\">\n",
        frame.top,
        RIGHT - LEFT,
        frame.bottom - frame.top
    );
    for boxes in &panel.boxes {
        draw_boxes(frame, boxes, out);
    }
    for series in &panel.series {
        lines(frame, series, out);
    }
    out.push_str("</g>\n");
    // Not clipped: a marker on the frame is drawn completely.
    for series in &panel.series {
        marks(frame, series, out);
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a coordinate with two decimals, a hundredth of a pixel.
fn px(value: f64) -> String {
    format!("{value:.2}")
}

pub(super) fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, more: &str, words: &str) {
    let (x, y, words) = (px(x), px(y), escape(words));
    let _ =
        writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{more}>{words}</text>");
}

pub(super) fn line(out: &mut String, from: (f64, f64), to: (f64, f64), style: &str) {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(px);
    let _ = writeln!(out, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" {style}/>");
}

/// The text around a frame.
struct Titles<'a> {
    above: Option<&'a String>,
    below: Option<&'a String>,
}

fn axes(frame: &Frame<'_>, titles: Titles<'_>, out: &mut String) {
    let &Frame { top, bottom, x: x_axis, y: y_axis } = frame;
    let grid = "stroke=\"#dddddd\" stroke-width=\"0.8\"";
    let tick = "stroke=\"#000000\" stroke-width=\"1\"";
    for (value, label) in x_axis.ticks() {
        let (x, _) = frame.at(value, y_axis.range.0);
        line(out, (x, top), (x, bottom), grid);
        line(out, (x, bottom), (x, bottom + 5.0), tick);
        if titles.below.is_some() {
            text(out, (x, bottom + 20.0), "middle", "", &label);
        }
    }
    for (value, label) in y_axis.ticks() {
        let (_, y) = frame.at(x_axis.range.0, value);
        line(out, (LEFT, y), (RIGHT, y), grid);
        line(out, (LEFT - 5.0, y), (LEFT, y), tick);
        text(out, (LEFT - 9.0, y + 4.5), "end", "", &label);
    }
    let [x, y, w, h] = [LEFT, top, RIGHT - LEFT, bottom - top].map(px);
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"none\" stroke=\"#000000\"/>"
    );
    let middle = (LEFT + RIGHT) / 2.0;
    if let Some(title) = titles.above {
        let bold = " font-size=\"15\" font-weight=\"bold\"";
        text(out, (LEFT, TOP - 18.0), "start", bold, title);
    }
    if let Some(label) = titles.below {
        text(out, (middle, bottom + 44.0), "middle", "", label);
    }
    let (x, y) = (20.0, (top + bottom) / 2.0);
    let turn = format!(" transform=\"rotate(-90 {} {})\"", px(x), px(y));
    text(out, (x, y), "middle", &turn, &y_axis.label);
}

fn stroke(style: Style) -> String {
    let width = f64::from(style.width) / 10.0;
    let dash = match style.dash {
        "" => String::new(),
        dash => format!(" stroke-dasharray=\"{dash}\""),
    };
    format!(
        "stroke=\"{}\" stroke-width=\"{width:.1}\"{dash} stroke-linejoin=\"round\"",
        style.colour
    )
}

fn lines(frame: &Frame<'_>, series: &Series, out: &mut String) {
    let style = series.style;
    let finite = |m: &Mark| m.y.is_finite();
    if style.interval == Interval::Band {
        band(frame, series, out);
    }
    let is_connected = style.width > 0;
    let mut rest = if is_connected { series.points.as_slice() } else { &[] };
    while let Some(begin) = rest.iter().position(finite) {
        let run = &rest[begin..];
        let (run, after) = run.split_at(run.iter().position(|m| !finite(m)).unwrap_or(run.len()));
        let mut path: Vec<(f64, f64)> = Vec::new();
        for mark in run {
            let (x, y) = frame.at(mark.x, mark.y);
            path.extend(path.last().filter(|_| style.step).map(|last| (x, last.1)));
            path.push((x, y));
        }
        if let (true, Some(end), Some(&(_, y))) = (style.step, after.first(), path.last()) {
            path.push((frame.at(end.x, 0.0).0, y));
        }
        let path: Vec<String> =
            path.into_iter().map(|(x, y)| format!("{},{}", px(x), px(y))).collect();
        let (path, stroke) = (path.join(" "), stroke(style));
        let _ = writeln!(out, "<polyline points=\"{path}\" fill=\"none\" {stroke}/>");
        rest = after;
    }
}

/// Draws boxes with whiskers.
fn draw_boxes(frame: &Frame<'_>, boxes: &Boxes, out: &mut String) {
    for quartiles in boxes.boxes.iter().filter(|q| q.values.iter().all(|v| v.is_finite())) {
        let [low, first, median, third, high] =
            quartiles.values.map(|value| frame.at(quartiles.x, value));
        draw_box(boxes.style.colour, [low, first, median, third, high], out);
    }
}

fn draw_box(colour: &str, [low, first, median, third, high]: [(f64, f64); 5], out: &mut String) {
    let (thin, thick) = (
        format!("stroke=\"{colour}\" stroke-width=\"1.2\""),
        format!("stroke=\"{colour}\" stroke-width=\"2.4\""),
    );
    for (from, to) in [(low, first), (third, high)] {
        line(out, from, to, &thin);
    }
    for (x, y) in [low, high] {
        line(out, (x - BOX / 2.0, y), (x + BOX / 2.0, y), &thin);
    }
    let [x, y, w, h] = [third.0 - BOX, third.1, 2.0 * BOX, first.1 - third.1].map(px);
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{colour}\" \
         fill-opacity=\"0.18\" {thin}/>"
    );
    line(out, (median.0 - BOX, median.1), (median.0 + BOX, median.1), &thick);
}

/// Draws markers and bars, without those outside of the frame.
fn marks(frame: &Frame<'_>, series: &Series, out: &mut String) {
    let style = series.style;
    let inside = |axis: &super::Axis, v: f64| (0.0..=1.0).contains(&axis.place(v));
    for mark in series.points.iter().filter(|m| inside(frame.x, m.x) && inside(frame.y, m.y)) {
        if let (Some((low, high)), Interval::Bars | Interval::Quartiles) =
            (mark.ends(), style.interval)
        {
            let thin = format!("stroke=\"{}\" stroke-width=\"1\"", style.colour);
            let (bottom, top) = frame.y.range;
            let end = |y: f64| frame.at(mark.x, y.clamp(bottom, top));
            let (from, to) = (end(low), end(high));
            line(out, from, to, &thin);
            for (x, y) in [from, to] {
                line(out, (x - 3.0, y), (x + 3.0, y), &thin);
            }
        }
        marker(frame.at(mark.x, mark.y), style, out);
    }
}

fn band(frame: &Frame<'_>, series: &Series, out: &mut String) {
    let finite = |i: &(f64, f64)| i.0.is_finite() && i.1.is_finite();
    let known = series.points.iter().filter_map(|m| Some((m.x, m.interval.filter(finite)?)));
    let below = known.clone().map(|(x, i)| frame.at(x, i.0));
    let above: Vec<_> = known.map(|(x, i)| frame.at(x, i.1)).collect();
    let around = below.chain(above.into_iter().rev());
    let path: Vec<String> = around.map(|(x, y)| format!("{},{}", px(x), px(y))).collect();
    if !path.is_empty() {
        let (path, colour) = (path.join(" "), series.style.colour);
        let _ =
            writeln!(out, "<polygon points=\"{path}\" fill=\"{colour}\" fill-opacity=\"0.18\"/>");
    }
}

fn marker((x, y): (f64, f64), style: Style, out: &mut String) {
    let colour = style.colour;
    let polygon = |corners: &[(f64, f64)]| {
        let corners: Vec<String> = corners
            .iter()
            .map(|(dx, dy)| format!("{},{}", px(x + dx * R), px(y + dy * R)))
            .collect();
        format!("<polygon points=\"{}\" fill=\"{colour}\"/>\n", corners.join(" "))
    };
    let circle = |fill: &str| {
        let (x, y) = (px(x), px(y));
        format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{R}\" fill=\"{fill}\" stroke=\"{colour}\"/>\n")
    };
    out.push_str(&match style.marker {
        Marker::None => return,
        Marker::Circle => circle(colour),
        Marker::Ring => circle("#ffffff"),
        Marker::Square => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        Marker::Triangle => polygon(&[(0.0, -1.1), (1.1, 0.9), (-1.1, 0.9)]),
        Marker::Diamond => polygon(&[(0.0, -1.3), (1.2, 0.0), (0.0, 1.3), (-1.2, 0.0)]),
    });
}

/// Draws next to each panel the legend entries that no panel above has shown.
fn legends(figure: &Panels, frames: &[Frame<'_>], out: &mut String) {
    let mut shown: Vec<(&str, Style)> = Vec::new();
    let mut y = 0.0;
    for (panel, frame) in figure.panels.iter().zip(frames) {
        y = f64::max(y, frame.top + 8.0);
        let mut fresh = |name, style| {
            let fresh = figure.panels.len() == 1 || !shown.contains(&(name, style));
            shown.push((name, style));
            fresh
        };
        for series in panel.series.iter().filter(|s| fresh(&s.name, s.style)) {
            if series.style.width > 0 {
                line(out, (LEGEND, y), (LEGEND + 36.0, y), &stroke(series.style));
            }
            marker((LEGEND + 18.0, y), series.style, out);
            y = legend_words(&series.name, y, out);
        }
        for boxes in panel.boxes.iter().filter(|b| fresh(&b.name, b.style)) {
            let at = [8.0, 4.0, 0.0, -4.0, -8.0].map(|up| (LEGEND + 18.0, y + up));
            draw_box(boxes.style.colour, at, out);
            y = legend_words(&boxes.name, y, out);
        }
        if let Some(note) = note(panel) {
            text(out, (LEGEND, y + 6.0), "start", " font-size=\"11\" fill=\"#444444\"", note);
            y += LEGEND_LINE;
        }
    }
}

/// Writes a name next to its sign, and returns the position of the next entry.
fn legend_words(name: &str, mut y: f64, out: &mut String) -> f64 {
    for words in wrap(name) {
        text(out, (LEGEND + 44.0, y + 4.0), "start", " font-size=\"12\"", &words);
        y += 15.0;
    }
    y + LEGEND_LINE - 15.0
}

/// Explains how a panel shows intervals or distributions.
fn note(panel: &Panel) -> Option<&'static str> {
    let shown = panel.series.iter().filter(|s| s.points.iter().any(|m| m.ends().is_some()));
    let shows = |kind| shown.clone().any(|s| s.style.interval == kind);
    match () {
        () if shows(Interval::Band) => Some("shaded: 95 % intervals"),
        () if shows(Interval::Bars) => Some("bars: 95 % intervals"),
        () if shows(Interval::Quartiles) => Some("bars: quartiles of the runs"),
        () if !panel.boxes.is_empty() => Some("boxes: quartiles; whiskers: all"),
        () => None,
    }
}

/// Wraps the text of a legend into lines that fit next to the frame.
fn wrap(words: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        let last = lines.last_mut().expect("it begins with one");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > LEGEND_CHARS {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::Axis;
    use super::*;

    #[test]
    fn a_chart_is_well_formed_and_has_everything() {
        let mark = |x: f64, y: f64| Mark { x, y, interval: Some((y - 1.0, y + 1.0)) };
        let points = vec![mark(0.0, 1.0), mark(1.0, f64::NAN), mark(2.0, 1e300)];
        let series =
            |n| Series { name: format!("<{n}>"), style: Style::nth(n), points: points.clone() };
        let chart = Chart {
            title: "Loss & <repair>".into(),
            x: Axis::linear("loss (%)", (0.0, 2.0), 1.0),
            y: Axis::linear("residual (%)", (0.0, 4.0), 1.0),
            series: (0..4)
                .map(series)
                .chain([Series { style: Style::nth(1).dense(), ..series(4) }])
                .collect(),
        };
        let drawn = svg(&chart);
        assert!(drawn.contains("Loss &amp; &lt;repair&gt;") && !drawn.contains("NaN"), "{drawn}");
        let image = super::super::png(&drawn);
        assert_eq!(&image[1..4], b"PNG");
        assert_eq!(image[16..24], [0, 0, 6, 184, 0, 0, 3, 232], "1720 by 1000");
    }

    #[test]
    fn legends_are_wrapped_between_words() {
        assert_eq!(wrap("2p² − p³, every way to fail"), ["2p² − p³, every way to", "fail"]);
        assert_eq!(wrap("uniform"), ["uniform"]);
    }
}
