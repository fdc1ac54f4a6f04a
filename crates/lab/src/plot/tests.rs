//! Tests of the panels' elements other than lines.

use super::*;

fn x() -> Axis {
    Axis::linear("time (s)", (0.0, 10.0), 2.0)
}

fn y() -> Axis {
    Axis::linear("packets", (0.0, 4.0), 1.0)
}

fn steps() -> Series {
    let mark = |x: f64, y: f64| Mark { x, y, interval: None };
    let points = [(0.0, 1.0), (2.0, 3.0), (4.0, f64::NAN), (6.0, 2.0), (8.0, 2.0), (9.0, 0.5)];
    let points = points.map(|(x, y)| mark(x, y)).to_vec();
    Series { name: "waiting".into(), style: Style::nth(0).stepped(), points }
}

fn boxes() -> Boxes {
    let of = |x: f64, values: &[f64]| Quartiles::of(x, values.iter().copied());
    let some = [of(3.0, &[3.0, 1.0, f64::NAN, 2.0, 1.5]), of(7.0, &[2.0]), of(5.0, &[])];
    let boxes = some.into_iter().flatten().collect();
    Boxes { name: "delay".into(), style: Style::nth(1), boxes }
}

fn guides(places: &[(f64, &str)]) -> Vec<Guide> {
    places.iter().map(|&(at, label)| Guide { at, label: label.to_owned() }).collect()
}

fn one(panel: Panel) -> Panels {
    Panels { title: "One".into(), x: x(), panels: vec![panel], guides: Vec::new() }
}

/// A figure with every element, checked by eye.
fn all() -> Panels {
    let first = Panel {
        guides: guides(&[(3.0, "deadline"), (3.2, "threshold"), (0.2, "least"), (9.0, "outside")]),
        ..Panel::new(y(), vec![steps()])
    };
    let second = Panel { boxes: vec![boxes()], ..Panel::new(y(), vec![steps()]) };
    let third =
        Panel::new(y(), vec![Series { name: "lost".into(), style: Style::nth(2), ..steps() }]);
    let times = [(2.0, "bottleneck changes"), (2.5, "mended"), (9.5, "paris crashes"), (2.2, "x")];
    Panels {
        title: "Panels & guides".into(),
        x: x(),
        panels: vec![first, second, third],
        guides: guides(&times),
    }
}

/// The elements that one drawing has in addition to another.
fn more(than: &Panels, drawn: &Panels) -> String {
    let base = panels_svg(than);
    let known: Vec<&str> = base.lines().collect();
    let drawn = panels_svg(drawn);
    assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    super::png(&drawn);
    let new: Vec<&str> = drawn.lines().filter(|line| !known.contains(line)).collect();
    new.join("\n")
}

#[test]
fn a_step_line_holds_each_value_until_the_next() {
    let empty = one(Panel::new(y(), Vec::new()));
    insta::assert_snapshot!("step", more(&empty, &one(Panel::new(y(), vec![steps()]))));
}

/// An interval of a single run is NaN, and quartiles are no 95 % interval.
#[test]
fn a_bar_is_called_what_it_is_and_that_of_a_single_run_is_not_drawn() {
    let note = |interval, kind| {
        let mark = Mark { x: 2.0, y: 1.0, interval };
        let style = Style { interval: kind, ..Style::nth(0) };
        let series = Series { name: "lost".into(), style, points: vec![mark] };
        let drawn = more(&one(Panel::new(y(), Vec::new())), &one(Panel::new(y(), vec![series])));
        let words = ["95 % intervals", "quartiles"];
        words.into_iter().find(|word| drawn.contains(word))
    };
    let ends = Some((0.5, 1.5));
    assert_eq!(note(ends, Interval::Bars), Some("95 % intervals"));
    assert_eq!(note(ends, Interval::Quartiles), Some("quartiles"));
    for kind in [Interval::Bars, Interval::Band] {
        assert_eq!(note(Some((f64::NAN, f64::NAN)), kind), None);
    }
}

#[test]
fn boxes_show_quartiles_and_extremes() {
    let values = Quartiles::of(0.0, (1..=8).map(f64::from)).unwrap().values;
    assert_eq!(values, [1.0, 2.0, 4.0, 6.0, 8.0]);
    assert_eq!(Quartiles::of(0.0, [f64::NAN]), None);
    let empty = one(Panel::new(y(), Vec::new()));
    let drawn = one(Panel { boxes: vec![boxes()], ..Panel::new(y(), Vec::new()) });
    insta::assert_snapshot!("boxes", more(&empty, &drawn));
}

#[test]
fn guide_lines_have_labels_where_there_is_room() {
    let empty = one(Panel::new(y(), Vec::new()));
    let mut drawn = empty.clone();
    drawn.panels[0].guides = guides(&[(1.0, "one"), (1.1, "close to it"), (5.0, "outside")]);
    drawn.guides = guides(&[(9.9, "right"), (-1.0, "outside")]);
    insta::assert_snapshot!("guides", more(&empty, &drawn));
}

#[test]
fn panels_stand_under_each_other() {
    insta::assert_snapshot!("panels", panels_svg(&all()));
    // A figure of one panel is a chart.
    let Panels { title, x, panels, .. } = one(Panel::new(y(), vec![steps()]));
    let [Panel { y, series, .. }] = <[Panel; 1]>::try_from(panels.clone()).unwrap();
    let chart = Chart { title: title.clone(), x: x.clone(), y, series };
    assert_eq!(svg(&chart), panels_svg(&Panels { title, x, panels, guides: Vec::new() }));
}

fn labels(axis: &Axis) -> Vec<String> {
    axis.ticks().into_iter().map(|t| t.1).collect()
}

#[test]
fn ticks_have_as_many_digits_as_they_need() {
    assert_eq!(
        labels(&Axis::linear("", (0.0, 1.0), 0.25)),
        ["0.00", "0.25", "0.50", "0.75", "1.00"]
    );
    assert_eq!(labels(&Axis::linear("", (90.0, 100.0), 5.0)), ["90", "95", "100"]);
    assert_eq!(labels(&Axis::log("", (0.001, 10.0))), ["0.001", "0.01", "0.1", "1", "10"]);
    assert_eq!(labels(&Axis::log("", (1e-5, 1e-4))), ["0.00001", "0.0001"]);
    let axis = Axis::fitting("", 0.0, [0.3, 1.93, f64::NAN].into_iter());
    assert_eq!((axis.range, axis.step), ((0.0, 2.0), 0.5));
    assert_eq!(Axis::fitting("", 0.0, [].into_iter()).range.0, 0.0);
}

#[test]
fn places_are_shares_of_the_axis() {
    assert_eq!(Axis::linear("", (2.0, 4.0), 1.0).place(3.0), 0.5);
    assert!((Axis::log("", (0.01, 100.0)).place(1.0) - 0.5).abs() < 1e-12);
}
