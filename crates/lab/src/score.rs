//! Counts of claims. A paper's claims count by its sentences, and the declared reading alone gives
//! a sentence's verdict.

use crate::claim::{Claim, Verdict};
use serde::Serialize;

/// Number of sentences or claims by verdict.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of those that hold.
    pub holds: usize,
    /// Number of those that are better than the paper says.
    pub exceeds: usize,
    /// Number of those that fail.
    pub fails: usize,
    /// Number of those that are undecided.
    pub undecided: usize,
}

impl Count {
    /// Counts one more sentence or claim.
    pub fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Holds => self.holds += 1,
            Verdict::Exceeds => self.exceeds += 1,
            Verdict::Fails => self.fails += 1,
            Verdict::Undecided => self.undecided += 1,
        }
    }

    /// Number of all sentences or claims.
    pub fn all(&self) -> usize {
        self.holds + self.exceeds + self.fails + self.undecided
    }

    /// The counts in words, such as `18 of 23 hold, 3 fail, 2 undecided`.
    pub fn text(&self) -> String {
        let Count { holds, exceeds, fails, undecided } = *self;
        let mut text = format!("{holds} of {} hold", self.all());
        for (n, word) in [(exceeds, "exceed"), (fails, "fail"), (undecided, "undecided")] {
            if n > 0 {
                text += &format!(", {n} {word}");
            }
        }
        text
    }
}

/// A sentence of a paper, and what each reading of it gave.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Folder of the paper.
    pub paper: String,
    /// The sentence, in this project's words.
    pub text: String,
    /// Each reading's name and verdict; that of the declared one is empty.
    pub readings: Vec<(String, Verdict)>,
}

impl Sentence {
    /// The verdict in this reading, if the sentence is judged in it.
    pub fn verdict(&self, reading: &str) -> Option<Verdict> {
        self.readings.iter().find(|(name, _)| name == reading).map(|(_, verdict)| *verdict)
    }

    /// Number of readings in which the sentence holds, neither exceeded nor undecided, and number of
    /// all in which it is judged.
    pub fn holds_in(&self) -> (usize, usize) {
        let holds = self.readings.iter().filter(|(_, verdict)| *verdict == Verdict::Holds);
        (holds.count(), self.readings.len())
    }
}

/// Counts claims: a paper's by sentence, and this project's one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Sentences of the papers, in the order in which their first claims came.
    pub sentences: Vec<Sentence>,
    /// Claims of this project.
    pub own: Count,
}

impl Score {
    /// Adds the verdict on a claim of the folder `paper`.
    pub fn add(&mut self, paper: &str, claim: &Claim, verdict: Verdict) {
        let Some(text) = claim.published else { return self.own.add(verdict) };
        let same = |s: &Sentence| s.paper == paper && s.text == text;
        let n = self.sentences.iter().position(same).unwrap_or_else(|| {
            let (paper, text) = (paper.to_owned(), text.to_owned());
            self.sentences.push(Sentence { paper, text, readings: Vec::new() });
            self.sentences.len() - 1
        });
        let readings = &mut self.sentences[n].readings;
        match readings.iter_mut().find(|(name, _)| name == claim.reading) {
            Some((_, all)) => *all = (*all).and(verdict),
            None => readings.push((claim.reading.to_owned(), verdict)),
        }
    }

    /// The sentences by the verdict of the declared reading.
    pub fn published(&self) -> Count {
        let mut count = Count::default();
        for verdict in self.sentences.iter().filter_map(|s| s.verdict("")) {
            count.add(verdict);
        }
        count
    }

    /// Both counts in words, for the console.
    pub fn text(&self) -> String {
        let published = self.published();
        format!("the papers' sentences: {}; our own claims: {}", published.text(), self.own.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Exceeds, Fails, Holds, Undecided};

    fn claim(published: Option<&'static str>, reading: &'static str) -> Claim {
        Claim { published, reading, ..Claim::default() }
    }

    #[test]
    fn a_sentence_counts_once_by_its_declared_reading() {
        let mut score = Score::default();
        for (sentence, reading, verdict) in [
            (Some("a"), "", Holds),
            (Some("a"), "polled", Fails),
            (Some("a"), "slow", Holds),
            (Some("a"), "fast", Exceeds),
            (Some("b"), "", Holds),
            (Some("b"), "", Undecided),
            (Some("c"), "", Holds),
            (Some("c"), "", Exceeds),
            (None, "", Fails),
            (None, "", Holds),
        ] {
            score.add("x", &claim(sentence, reading), verdict);
        }
        score.add("y", &claim(Some("a"), ""), Fails);
        assert_eq!(score.published(), Count { holds: 1, exceeds: 1, fails: 1, undecided: 1 });
        assert_eq!(score.own, Count { holds: 1, fails: 1, ..Count::default() });
        assert_eq!(score.sentences[0].holds_in(), (2, 4));
        assert_eq!(score.sentences[0].verdict("polled"), Some(Fails));
        assert_eq!(
            score.text(),
            "the papers' sentences: 1 of 4 hold, 1 exceed, 1 fail, 1 undecided; \
             our own claims: 1 of 2 hold, 1 fail"
        );
    }
}
