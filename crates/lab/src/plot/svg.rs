use super::{Chart, Interval, Mark, Marker, Series, Style};
use std::fmt::Write as _;

/// The whole drawing, pixels.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 500.0;
/// The frame within it; the legend stands to its right.
const LEFT: f64 = 72.0;
const TOP: f64 = 44.0;
const RIGHT: f64 = 610.0;
const BOTTOM: f64 = 440.0;
const LEGEND: f64 = RIGHT + 18.0;
const LEGEND_LINE: f64 = 22.0;
/// Characters of a legend's line, at 12 pixels each line of text.
const LEGEND_CHARS: usize = 24;
/// Half the size of a marker.
const R: f64 = 4.0;

/// Draws a chart: the same bytes for the same chart.
pub fn svg(chart: &Chart) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         font-family=\"'DejaVu Sans', Verdana, sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        title = escape(&chart.title)
    );
    axes(chart, &mut out);
    // A clip's name must be unique in a page that holds many figures.
    let clip = format!("frame-{:016x}", crate::experiment::fnv1a(chart.title.bytes()));
    let _ = write!(
        out,
        "<clipPath id=\"{clip}\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\"/></clipPath>\n\
         <g clip-path=\"url(#{clip})\">\n",
        RIGHT - LEFT,
        BOTTOM - TOP
    );
    for series in &chart.series {
        lines(chart, series, &mut out);
    }
    out.push_str("</g>\n");
    // Not clipped: a marker on the frame is drawn as a whole.
    for series in &chart.series {
        marks(chart, series, &mut out);
    }
    legend(chart, &mut out);
    out.push_str("</svg>\n");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Two decimals are a hundredth of a pixel.
fn px(value: f64) -> String {
    format!("{value:.2}")
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, more: &str, words: &str) {
    let (x, y, words) = (px(x), px(y), escape(words));
    let _ =
        writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{more}>{words}</text>");
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), style: &str) {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(px);
    let _ = writeln!(out, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" {style}/>");
}

fn at(chart: &Chart, x: f64, y: f64) -> (f64, f64) {
    // What lies far outside must not become a number without end.
    let place = |p: f64| p.clamp(-0.5, 1.5);
    (
        LEFT + place(chart.x.place(x)) * (RIGHT - LEFT),
        BOTTOM - place(chart.y.place(y)) * (BOTTOM - TOP),
    )
}

fn axes(chart: &Chart, out: &mut String) {
    let grid = "stroke=\"#dddddd\" stroke-width=\"0.8\"";
    let tick = "stroke=\"#000000\" stroke-width=\"1\"";
    for (value, label) in chart.x.ticks() {
        let (x, _) = at(chart, value, chart.y.range.0);
        line(out, (x, TOP), (x, BOTTOM), grid);
        line(out, (x, BOTTOM), (x, BOTTOM + 5.0), tick);
        text(out, (x, BOTTOM + 20.0), "middle", "", &label);
    }
    for (value, label) in chart.y.ticks() {
        let (_, y) = at(chart, chart.x.range.0, value);
        line(out, (LEFT, y), (RIGHT, y), grid);
        line(out, (LEFT - 5.0, y), (LEFT, y), tick);
        text(out, (LEFT - 9.0, y + 4.5), "end", "", &label);
    }
    let [x, y, w, h] = [LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP].map(px);
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"none\" stroke=\"#000000\"/>"
    );
    let middle = (LEFT + RIGHT) / 2.0;
    text(out, (LEFT, TOP - 18.0), "start", " font-size=\"15\" font-weight=\"bold\"", &chart.title);
    text(out, (middle, BOTTOM + 44.0), "middle", "", &chart.x.label);
    let (x, y) = (20.0, (TOP + BOTTOM) / 2.0);
    let turn = format!(" transform=\"rotate(-90 {} {})\"", px(x), px(y));
    text(out, (x, y), "middle", &turn, &chart.y.label);
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

fn lines(chart: &Chart, series: &Series, out: &mut String) {
    let style = series.style;
    let finite = |m: &Mark| m.y.is_finite();
    if style.interval == Interval::Band {
        band(chart, series, out);
    }
    for run in series.points.split(|m| !finite(m)).filter(|run| !run.is_empty()) {
        let path: Vec<String> = run
            .iter()
            .map(|m| at(chart, m.x, m.y))
            .map(|(x, y)| format!("{},{}", px(x), px(y)))
            .collect();
        let (path, stroke) = (path.join(" "), stroke(style));
        let _ = writeln!(out, "<polyline points=\"{path}\" fill=\"none\" {stroke}/>");
    }
}

/// Markers and bars; those outside of the frame are left out.
fn marks(chart: &Chart, series: &Series, out: &mut String) {
    let style = series.style;
    let inside = |axis: &super::Axis, v: f64| (0.0..=1.0).contains(&axis.place(v));
    for mark in series.points.iter().filter(|m| inside(&chart.x, m.x) && inside(&chart.y, m.y)) {
        if let (Some((low, high)), Interval::Bars) = (mark.interval, style.interval) {
            let thin = format!("stroke=\"{}\" stroke-width=\"1\"", style.colour);
            let (bottom, top) = chart.y.range;
            let end = |y: f64| at(chart, mark.x, y.clamp(bottom, top));
            let (from, to) = (end(low), end(high));
            line(out, from, to, &thin);
            for (x, y) in [from, to] {
                line(out, (x - 3.0, y), (x + 3.0, y), &thin);
            }
        }
        marker(at(chart, mark.x, mark.y), style, out);
    }
}

fn band(chart: &Chart, series: &Series, out: &mut String) {
    let finite = |i: &(f64, f64)| i.0.is_finite() && i.1.is_finite();
    let known = series.points.iter().filter_map(|m| Some((m.x, m.interval.filter(finite)?)));
    let below = known.clone().map(|(x, i)| at(chart, x, i.0));
    let above: Vec<_> = known.map(|(x, i)| at(chart, x, i.1)).collect();
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

fn legend(chart: &Chart, out: &mut String) {
    let mut y = TOP + 8.0;
    for series in &chart.series {
        let style = series.style;
        line(out, (LEGEND, y), (LEGEND + 36.0, y), &stroke(style));
        marker((LEGEND + 18.0, y), style, out);
        for words in wrap(&series.name) {
            text(out, (LEGEND + 44.0, y + 4.0), "start", " font-size=\"12\"", &words);
            y += 15.0;
        }
        y += LEGEND_LINE - 15.0;
    }
    if chart.series.iter().any(|s| s.points.iter().any(|m| m.interval.is_some())) {
        let what = if chart.series.iter().any(|s| s.style.interval == Interval::Band) {
            "shaded: 95 % intervals"
        } else {
            "bars: 95 % intervals"
        };
        text(out, (LEGEND, y + 6.0), "start", " font-size=\"11\" fill=\"#444444\"", what);
    }
}

/// A legend's words in lines that fit beside the frame.
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
