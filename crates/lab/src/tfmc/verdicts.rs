//! Published verdicts of section 5.4's sentences, with the reasons of those that don't hold.

use super::readings::READINGS;
use crate::claim::Verdict::{self, Fails, Holds, Undecided};

/// Published verdicts of each sentence, a letter for each reading: it holds, fails, is undecided, or
/// is not judged in that reading (`-`). The declared reading comes first, the others follow in the
/// order of [`READINGS`]: what TFMC counts and reports, its own sequence numbers, the calls' spread,
/// the window, access links, and what is carried.
const VERDICTS: [(&str, &str); 9] = [
    ("tcp-falls", "H ---- ---- HHHF H HHHFH -"),
    ("tcp-over-5", "U UUFU UHHU UFUU U UUUHU -"),
    ("tcp-steady", "U HHUU HHHH HUUU U UFFHU -"),
    ("voice-below-tcp", "H HHUH UHHU HUUU U HUUHU -"),
    ("smoother", "U FUUU UFHU UFUU F UUFFF -"),
    ("less-bandwidth", "U UUUU HHHU UUUU U UUUFU U"),
    ("lower", "U UFUU UUUU UUUF U UFUFU -"),
    ("by-20-ms", "U UUUU UUUU UUUU F UUFFF -"),
    ("fewer-packets", "U UUUH HHHU UUUU U UUUFU -"),
];

/// The numbers of one call as witness for those of all.
const WATCHED: &str = "The calls keep their order at a full queue: some lose every packet and some none. \
                       The numbers of either reveal no loss, and nothing is multiplexed; those of any \
                       other reveal so much that up to 46 packets share a datagram. Runs show both.";
const SWINGS: &str = "Where the watched call does lose packets, m swings between 1 and 46 with every \
                      report, as equation (2) with S(m₁) allows 25 times as much with 46 packets in \
                      a datagram as with one, and most datagrams are single packets.";
const SETTLES: &str = "Some runs settle at 46 packets in a datagram, where nothing is lost. In others m \
                       swings between 1 and 46 with every report.";
const LARGE: &str = "At 1,000 bytes a segment, equation (2) allows single packets at most losses: m \
                     stays at 1 for most of the time.";
const STEADY: &str = "Without multiplexing the queue lets the same calls' packets through every 20 ms, \
                      which hardly varies.";
const EMPTY: &str = "Without multiplexing a packet is lost, or finds the queue nearly empty: 50 such \
                     packets are 2.4 ms. With TFMC there are fewer losses, and packets wait for others.";
const ACCESS: &str = "A queue of 50 packets in front of an access link of 10 Mbit/s drops two thirds of \
                      the calls' packets, and the same calls' each time. The bottleneck has no queue, and \
                      the watched calls reveal no loss.";

/// The published verdict of a claim, and the reason where it doesn't hold.
///
/// # Panics
///
/// If [`VERDICTS`] has none for the claim.
pub fn published(id: &str) -> (Verdict, &'static str) {
    let (sentence, reading) = id.split_once('@').unwrap_or((id, ""));
    match letter(sentence, reading) {
        Some('H') => (Holds, ""),
        Some('F') => (Fails, why(sentence, reading)),
        Some('U') => (Undecided, why(sentence, reading)),
        _ => panic!("{id} has no published verdict"),
    }
}

fn letter(sentence: &str, reading: &str) -> Option<char> {
    let (_, letters) = VERDICTS.iter().find(|(named, _)| *named == sentence)?;
    let readings = std::iter::once("").chain(READINGS.iter().map(|r| r.name));
    let mut readings = readings.zip(letters.chars().filter(|c| *c != ' '));
    readings.find(|(name, _)| *name == reading).map(|(_, letter)| letter)
}

fn why(sentence: &str, reading: &str) -> &'static str {
    match (sentence, reading) {
        (_, "access-10-50") => ACCESS,
        ("tcp-falls", _) => {
            "Packets that are spread evenly leave 5.2 of 10 Mbit/s, of which the TCP had 6.65."
        }
        ("by-20-ms", "no-window" | "access-10-1000") => {
            "Where queues can be that long, TFMC leaves room that the TCP takes."
        }
        ("by-20-ms", "access-30-1000") => WATCHED,
        // The claim's note has the reason, with the numbers.
        ("by-20-ms", _) => "",
        ("lower", "no-window") => "The TCP fills the queue with what the calls leave it.",
        ("lower", _) => EMPTY,
        (_, "carried") => {
            "Without multiplexing two thirds of the calls' packets don't reach the bottleneck; more \
             do with TFMC."
        }
        ("smoother", _) => STEADY,
        (_, "trunk-numbers") => SETTLES,
        (_, "trunk-1000-bytes") => LARGE,
        (
            "tcp-over-5" | "tcp-steady" | "voice-below-tcp",
            "spread-5" | "spread-10" | "access-10-1000",
        ) => SWINGS,
        _ => WATCHED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tfmc::readings::OF_SIMULATION;

    /// A letter too few would publish a reading's verdict for another.
    #[test]
    fn every_reading_has_a_letter() {
        for (sentence, letters) in VERDICTS {
            let known = letters.chars().filter(|c| "HFU-".contains(*c)).count();
            assert_eq!(known, 1 + OF_SIMULATION, "{sentence}");
            assert!(letters.chars().all(|c| " HFU-".contains(c)), "{sentence}");
        }
        assert_eq!(published("tcp-falls"), (Holds, ""));
        assert_eq!(published("tcp-falls@spread-20").0, Fails);
        assert_eq!(published("by-20-ms"), (Undecided, ""));
    }
}
