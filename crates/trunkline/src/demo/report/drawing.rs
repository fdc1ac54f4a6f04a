//! Drawing of the chain, as SVG.

use super::super::Args;
use super::super::chain::{index_of, letter, lossy_link};
use super::{percent, span};
use std::fmt::Write as _;

/// Heights of the UDP path and of the chain above the lower edge.
const UDP: f64 = 52.0;
const CHAIN: f64 = 128.0;
const HEIGHT: f64 = 196.0;
/// Width of the boxes at the ends, which stand for the applications.
const BOX: f64 = 26.0;
/// Distance between a box and the first or last node, relative to the distance between nodes.
const EDGE: f64 = 0.45;
/// Minimum distance between the centres of two nodes.
const CLOSEST: f64 = 44.0;
/// Maximum width of a letter in the labels of links.
const LETTER: f64 = 8.0;

/// Draws the callers, nodes and listeners and the links between them, `width` CSS pixels wide, or
/// wider if the nodes need it.
pub fn chain(args: &Args, width: f64) -> String {
    let hops = f64::from(args.hops);
    let room = (width - 2.0 * BOX - 2.0) / (hops + 2.0 * EDGE);
    // A short chain is not stretched to the edges.
    let pitch = room.clamp(CLOSEST, 150.0);
    let width = 2.0 * BOX + 2.0 + pitch * (hops + 2.0 * EDGE);
    let x = |node: u32| 1.0 + BOX + pitch * (EDGE + f64::from(node));
    let killed = args.restart.and_then(|name| index_of(name, args.hops).ok());
    let middle = lossy_link(args.hops);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{HEIGHT}\" \
         role=\"img\" aria-label=\"Callers, a chain of nodes A to {}, listeners, and the UDP path \
         beside the chain\">",
        letter(args.hops)
    );
    let right = width - BOX - 1.0;
    let mut draw = |text: String| svg.push_str(&text);
    draw(line("udp", (BOX + 1.0, UDP), (right, UDP)));
    let whole = args.delay.0 * args.hops;
    draw(label("", width / 2.0, UDP - 26.0, &format!("plain UDP: one path of {}", span(whole))));
    let lossy = args.loss.0 > 0.0;
    if lossy {
        draw(label("loss", width / 2.0, UDP - 8.0, "the same losses"));
    }
    draw(line("local", (BOX + 1.0, CHAIN), (x(0), CHAIN)));
    draw(line("local", (x(args.hops), CHAIN), (right, CHAIN)));
    let each = span(args.delay.0);
    let fits = each.chars().count() as f64 * LETTER <= pitch;
    if !fits {
        draw(label("", width / 2.0, CHAIN - 20.0, &format!("each link {each}")));
    }
    for i in 0..args.hops {
        let (a, b) = (x(i), x(i + 1));
        let class = if i == middle && lossy { "link lossy" } else { "link" };
        draw(line(class, (a, CHAIN), (b, CHAIN)));
        if fits {
            draw(label("", (a + b) / 2.0, CHAIN - 20.0, &each));
        }
    }
    let centre = (x(middle) + x(middle + 1)) / 2.0;
    let (loss, burst) = (percent(args.loss.0), percent(args.burst.0));
    let said = [
        format!("{}-{} loses {loss} % each way", letter(middle), letter(middle + 1)),
        format!("burstiness {burst} %"),
    ];
    for (said, y) in said.iter().zip([36.0, 54.0]).filter(|_| lossy) {
        draw(label("loss", centre, CHAIN + y, said));
    }
    for i in 0..=args.hops {
        let class = if killed == Some(i) { "node killed" } else { "node" };
        draw(format!("<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{CHAIN}\" r=\"13\"/>", x(i)));
        draw(label("name", x(i), CHAIN + 5.0, &letter(i).to_string()));
    }
    for (left, who) in [(1.0, "callers"), (right, "listeners")] {
        let (top, bottom) = (UDP - 22.0, CHAIN + 22.0);
        let (middle, height) = ((top + bottom) / 2.0, bottom - top);
        draw(format!(
            "<rect class=\"box\" x=\"{left:.1}\" y=\"{top}\" width=\"{BOX}\" height=\"{height}\" \
             rx=\"5\"/><text text-anchor=\"middle\" transform=\"translate({:.1} {middle}) \
             rotate(-90)\">{} {who}</text>",
            left + BOX / 2.0 + 5.0,
            args.calls
        ));
    }
    svg + "</svg>"
}

fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1}\" x2=\"{x2:.1}\" y2=\"{y2}\"/>")
}

/// A text label. `text` is a number, a unit or fixed words: nothing needs escaping.
fn label(class: &str, x: f64, y: f64, text: &str) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<text class=\"{class}\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{y}\">{text}</text>"
    );
    out
}

#[cfg(test)]
mod tests {
    use super::super::WIDTHS;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn drawn(line: &str, width: f64) -> (f64, String) {
        let command = Command::parse_from(format!("demo {line}").split_whitespace());
        let svg = chain(&command.args, width);
        let number = svg.split('"').nth(3).and_then(|n| n.parse().ok());
        (number.expect("a width"), svg)
    }

    #[test]
    fn the_usual_chain_fits_a_telephone() {
        for width in WIDTHS {
            let (wide, svg) = drawn("", width);
            assert!(wide <= width, "{wide} > {width}");
            assert_eq!(svg.matches(">10 ms<").count(), 5, "{svg}");
        }
        let (wide, svg) = drawn("--hops 25 --delay 12.5ms", WIDTHS[1]);
        assert!(wide > WIDTHS[1] && svg.contains(">Z<"), "{svg}");
        assert_eq!(svg.matches(">each link 12.5 ms<").count(), 1, "{svg}");
    }

    #[test]
    fn what_is_broken_is_marked() {
        let (_, svg) = drawn("--restart c --loss 5%", WIDTHS[0]);
        assert!(svg.contains("killed") && svg.contains("lossy"), "{svg}");
        let (_, svg) = drawn("--loss 0", WIDTHS[0]);
        assert!(!svg.contains("killed") && !svg.contains("lossy"), "{svg}");
        assert!(!svg.contains("loses") && !svg.contains("same losses"), "{svg}");
    }
}
