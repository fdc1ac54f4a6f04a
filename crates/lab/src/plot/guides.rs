//! Lines at a fixed position of an axis, and the layout of their labels.

use super::Guide;
use super::svg::{Frame, HALO, LEFT, RIGHT, WIDTH, line, text};

const STROKE: &str = "stroke=\"#555555\" stroke-width=\"1\" stroke-dasharray=\"5 3\"";
const FONT: &str = " font-size=\"11\" fill=\"#333333\"";
/// Average width of a character, at most, and height of a line of text, in pixels.
const CHAR: f64 = 6.6;
pub const ROW: f64 = 13.0;

fn width(label: &str) -> f64 {
    label.chars().count() as f64 * CHAR
}

/// Row above the panels in which each label is placed, with 0 the lowest, given the pixels of their
/// lines; and the number of rows. A label begins at its line. Of two that would overlap, the left
/// one is placed higher, so that its line passes the other's beginning.
pub fn rows(lines: &[(f64, &str)]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by(|&a, &b| lines[b].0.total_cmp(&lines[a].0));
    let mut rows = vec![0; lines.len()];
    // Where the leftmost label of each row begins.
    let mut begins: Vec<f64> = Vec::new();
    for n in order {
        let (x, label) = lines[n];
        let end = x + width(label) + 6.0;
        // Above all labels that it would overlap.
        let row = begins.iter().rposition(|&begin| end > begin).map_or(0, |row| row + 1);
        if row == begins.len() {
            begins.push(x);
        }
        begins[row] = x;
        rows[n] = row;
    }
    let count = rows.iter().max().map_or(0, |most| most + 1);
    (rows, count)
}

/// Draws the lines through a panel; in the first panel they extend up to their labels.
pub fn vertical(out: &mut String, guides: &[(f64, &str)], frame: &Frame<'_>, first: bool) {
    let (rows, _) = rows(guides);
    for (&(x, label), row) in guides.iter().zip(rows) {
        if !first {
            line(out, (x, frame.top), (x, frame.bottom), STROKE);
            continue;
        }
        let foot = frame.top - 4.0 - row as f64 * ROW;
        line(out, (x, foot - 8.0), (x, frame.bottom), STROKE);
        // Text that is too long is cut at the edge of the drawing.
        let fits = ((WIDTH - x - 8.0) / CHAR) as usize;
        let label: String = label.chars().take(fits).collect();
        text(out, (x + 4.0, foot), "start", FONT, &label);
    }
}

/// Draws the horizontal lines of a panel, with labels where there is neither a label nor a line
/// yet.
pub fn horizontal(out: &mut String, guides: &[Guide], frame: &Frame<'_>) {
    let inside = guides.iter().filter(|g| (0.0..=1.0).contains(&frame.y.place(g.at)));
    let lines: Vec<(f64, &str)> =
        inside.map(|g| (frame.at(frame.x.range.0, g.at).1, g.label.as_str())).collect();
    for &(y, _) in &lines {
        line(out, (LEFT, y), (RIGHT, y), STROKE);
    }
    // Left, right and baseline of the text drawn so far.
    let mut taken: Vec<(f64, f64, f64)> = Vec::new();
    for &(y, label) in &lines {
        let wide = width(label).min(RIGHT - LEFT - 8.0);
        let (left, right) = (LEFT + 4.0, RIGHT - 4.0 - wide);
        let middle = (left + right) / 2.0;
        let places = [right, left, middle].map(|x| [(x, y - 4.0), (x, y + 12.0)]);
        let free = |&(x, foot): &(f64, f64)| {
            let (top, bottom) = (foot - 9.0, foot + 2.0);
            let over = |&(from, to, other): &(f64, f64, f64)| {
                x < to && from < x + wide && (foot - other).abs() < ROW
            };
            (top >= frame.top && bottom <= frame.bottom)
                && !lines.iter().any(|&(y, _)| (top..=bottom).contains(&y))
                && !taken.iter().any(over)
        };
        let (x, foot) = places.into_iter().flatten().find(free).unwrap_or((right, y - 4.0));
        taken.push((x, x + wide, foot));
        text(out, (x, foot), "start", &format!("{FONT}{HALO}"), label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_would_overlap_stand_above_each_other() {
        let (rows, count) = rows(&[(100.0, "one"), (400.0, "three"), (110.0, "two"), (105.0, "a")]);
        assert_eq!((rows, count), (vec![2, 0, 0, 1], 3));
        assert_eq!(super::rows(&[]), (vec![], 0));
    }
}
