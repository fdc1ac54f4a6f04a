use crate::claim::Claim;
use crate::error::Error;
use crate::experiment::{Experiment, Figure};
use crate::testbed::Testbed;
use crate::{beyond, dccp_voice, reliable_overlay, tfmc, voip_overlay, wifi_adapt};

/// All experiments of the lab.
pub struct Papers(pub Vec<Experiment>);

/// Description of a folder of figures.
pub struct Paper {
    /// Its name in `PAPER/FIGURE`.
    pub folder: &'static str,
    /// Authors, title and year, or the common subject of the figures.
    pub title: &'static str,
    /// The same in a few words, for a table.
    pub short: &'static str,
    /// The declared reading, where there are others: the set-up that the paper's text asks for, where
    /// it does, and what the rest is based on.
    pub declared: &'static str,
    /// The other readings of the paper's sentences.
    pub readings: &'static [Reading],
    /// Path of the page that describes the measurements, in the source tree; empty if there is none.
    pub guide: &'static str,
}

/// A set-up in which sentences of a paper are judged, other than the declared one.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Its name, unique in the paper.
    pub name: &'static str,
    /// How it differs from the declared reading.
    pub differs: &'static str,
}

/// All folders in the order of a report: papers first, then the figures that no paper has.
pub const PAPERS: [Paper; 6] = [
    Paper {
        folder: voip_overlay::PAPER,
        title: "Amir, Danilov, Goose, Hedqvist, Terzis: An Overlay Architecture for High Quality \
                VoIP Streams (CNDS-2005-1)",
        short: "Amir et al. 2005: voice over an overlay",
        declared: "",
        readings: &[],
        guide: "",
    },
    Paper {
        folder: reliable_overlay::PAPER,
        title: "Amir, Danilov: Reliable Communication in Overlay Networks (DSN 2003)",
        short: "Amir & Danilov 2003: reliable links",
        declared: reliable_overlay::DECLARED,
        readings: reliable_overlay::READINGS,
        guide: "",
    },
    Paper {
        folder: tfmc::PAPER,
        title: "Trad, Afifi: Adaptive Multiplexing Scheme for Voice Flow Transmission Across \
                Best-Effort IP Networks (INRIA RR-4929)",
        short: "Trad & Afifi 2003: calls that share datagrams",
        declared: tfmc::readings::DECLARED,
        readings: &tfmc::readings::READINGS,
        guide: "",
    },
    Paper {
        folder: dccp_voice::PAPER,
        title: "Balan, Eggert, Niccolini, Brunner: An Experimental Evaluation of Voice Quality over \
                the Datagram Congestion Control Protocol (INFOCOM 2007)",
        short: "Balan et al. 2007: voice over DCCP",
        declared: dccp_voice::DECLARED,
        readings: dccp_voice::READINGS,
        guide: "docs/dccp-voice.md",
    },
    Paper {
        folder: wifi_adapt::PAPER,
        title: "Trad, Ni, Afifi: Adaptive VoIP Transmission over Heterogeneous Wired/Wireless \
                Networks (2004)",
        short: "Trad, Ni & Afifi 2004: codecs that adapt over 802.11e",
        declared: wifi_adapt::DECLARED,
        readings: wifi_adapt::READINGS,
        guide: "docs/wifi-adapt.md",
    },
    Paper {
        folder: beyond::PAPER,
        title: "Beyond the papers: behaviour in network failures, and the simulator compared with \
                daemons and kernels",
        short: "no paper: failures, trunks, the simulator compared with real daemons",
        declared: "",
        readings: &[],
        guide: "",
    },
];

/// Every experiment of the lab.
pub fn papers() -> Papers {
    let folders = [
        voip_overlay::experiments(),
        reliable_overlay::experiments(),
        tfmc::experiments(),
        dccp_voice::experiments(),
        wifi_adapt::experiments(),
        beyond::experiments(),
    ];
    Papers(folders.into_iter().flatten().collect())
}

impl Papers {
    /// Every figure with its experiment, in the order of [`PAPERS`] and by number.
    pub fn figures(&self) -> impl Iterator<Item = (&Experiment, &Figure)> {
        let mut all: Vec<_> =
            self.0.iter().flat_map(|e| e.figures.iter().map(move |f| (e, f))).collect();
        // fig9 comes before fig10, with fig9b between them. What follows a hyphen is a variant, which
        // comes after the figure without it.
        let number = |name: &str| -> u32 {
            let base = name.split('-').next().unwrap_or(name);
            let digits = base.chars().filter(char::is_ascii_digit).collect::<String>();
            digits.parse().unwrap_or(u32::MAX)
        };
        let place = |paper| PAPERS.iter().position(|p| p.folder == paper);
        all.sort_by_key(|(e, f)| (place(e.paper), number(f.name), f.name));
        all.into_iter()
    }

    /// Every experiment that a testbed can measure, and its testbed.
    pub fn testbeds(&self) -> impl Iterator<Item = (&Experiment, &Testbed)> {
        self.0.iter().filter_map(|e| Some((e, e.testbed.as_ref()?)))
    }

    /// The figure with this id, `paper/figure`.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownFigure`], with the most similar one, or [`Error::ClaimForFigure`].
    pub fn find(&self, wanted: &str) -> Result<(&Experiment, &Figure), Error> {
        find(self.figures().collect(), wanted)
    }

    /// The figures that `wanted` selects: one, those of a folder, those of the five papers
    /// (`papers`), or `all`.
    ///
    /// # Errors
    ///
    /// As [`Papers::find`].
    pub fn select(&self, wanted: &str) -> Result<Vec<(&Experiment, &Figure)>, Error> {
        select(self.figures().collect(), wanted)
    }

    /// As [`Papers::select`], also for a claim, `paper/figure/claim`, whose figure and id are
    /// returned. With `beside`, figures of testbeds can be selected too.
    ///
    /// # Errors
    ///
    /// As [`Papers::find`], or [`Error::UnknownClaim`].
    #[expect(clippy::type_complexity, reason = "a pair of what is selected")]
    pub fn select_claims(
        &self,
        wanted: &str,
        beside: bool,
    ) -> Result<(Vec<(&Experiment, &Figure)>, Option<&'static str>), Error> {
        let mut all: Vec<_> = self.figures().collect();
        if beside {
            all.extend(self.testbeds().map(|(e, testbed)| (e, &testbed.figure)));
        }
        let (figure, name) = match select(all.clone(), wanted) {
            Err(Error::ClaimForFigure { figure, claim }) => (figure, claim),
            figures => return Ok((figures?, None)),
        };
        let found = find(all, &figure)?;
        let ids = found.1.claims.iter().map(|claim| claim.id);
        match ids.clone().find(|id| *id == name) {
            Some(id) => Ok((vec![found], Some(id))),
            None => {
                let suggestion = suggestion(ids.map(str::to_owned), &name);
                Err(Error::UnknownClaim { figure, claim: name, suggestion })
            }
        }
    }
}

fn find<'a>(
    figures: Vec<(&'a Experiment, &'a Figure)>,
    wanted: &str,
) -> Result<(&'a Experiment, &'a Figure), Error> {
    let named = |wanted: &str| figures.iter().find(|(e, f)| e.figure_id(f) == wanted);
    if let Some(found) = named(wanted) {
        return Ok(*found);
    }
    match wanted.rsplit_once('/').filter(|(figure, _)| named(figure).is_some()) {
        Some((figure, claim)) => {
            let (figure, claim) = (figure.to_owned(), claim.to_owned());
            Err(Error::ClaimForFigure { figure, claim })
        }
        None => {
            let suggestion = suggestion(figures.iter().map(|(e, f)| e.figure_id(f)), wanted);
            Err(Error::UnknownFigure { wanted: wanted.to_owned(), suggestion })
        }
    }
}

fn select<'a>(
    mut figures: Vec<(&'a Experiment, &'a Figure)>,
    wanted: &str,
) -> Result<Vec<(&'a Experiment, &'a Figure)>, Error> {
    match wanted {
        "all" => {}
        "papers" => figures.retain(|(e, _)| e.paper != beyond::PAPER),
        folder if PAPERS.iter().any(|paper| paper.folder == folder) => {
            figures.retain(|(e, _)| e.paper == folder);
        }
        one => return Ok(vec![find(figures, one)?]),
    }
    Ok(figures)
}

/// "did you mean …? " with the most similar name; empty if none is similar.
fn suggestion(names: impl Iterator<Item = String>, wanted: &str) -> String {
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(name, wanted);
    let nearest = names
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|name| likeness(name) > 0.5);
    nearest.map_or(String::new(), |name| format!("did you mean \"{name}\"? "))
}

impl Paper {
    /// The folder with this name.
    ///
    /// # Panics
    ///
    /// If there is none, which is a bug in an experiment.
    pub fn of(folder: &str) -> &'static Paper {
        let found = PAPERS.iter().find(|paper| paper.folder == folder);
        found.unwrap_or_else(|| panic!("{folder} is no folder of figures"))
    }

    /// Name of the set-up in which a claim judges a sentence of the paper, `declared` for the
    /// declared one. `None` for a claim of this project, and for a paper with a single reading.
    pub fn reading_of(&self, claim: &Claim) -> Option<&'static str> {
        let has_several = claim.published.is_some() && !self.readings.is_empty();
        has_several.then_some(if claim.reading.is_empty() { DECLARED } else { claim.reading })
    }

    /// How a set-up differs from the declared one; for the declared one, what it is.
    pub fn about_reading(&self, name: &str) -> &'static str {
        let other = self.readings.iter().find(|reading| reading.name == name);
        other.map_or(self.declared, |reading| reading.differs)
    }
}

/// Name of the declared reading in command lines and output.
pub const DECLARED: &str = "declared";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_selected_or_all_papers() {
        let papers = papers();
        let selected = |wanted| papers.select(wanted).unwrap().len();
        let folders = PAPERS.iter().map(|paper| selected(paper.folder));
        assert_eq!(folders.sum::<usize>(), selected("all"));
        assert_eq!(selected("papers") + selected("beyond"), selected("all"));
        assert!(papers.select("paper").is_err());
    }

    #[test]
    fn readings_are_registered_and_used() {
        let papers = papers();
        let all = papers.testbeds().map(|(e, testbed)| (e, &testbed.figure));
        let all: Vec<_> = papers.figures().chain(all).collect();
        for paper in PAPERS {
            let figures = all.iter().filter(|(e, _)| e.paper == paper.folder);
            let claims: Vec<_> = figures.flat_map(|(_, f)| &f.claims).collect();
            let used = |name: &str| claims.iter().any(|c| c.reading == name);
            let unused = paper.readings.iter().find(|r| !used(r.name));
            assert!(unused.is_none(), "{} judges nothing in {unused:?}", paper.folder);
            assert_eq!(paper.declared.is_empty(), paper.readings.is_empty(), "{}", paper.folder);
            for claim in &claims {
                let place = format!("{} {}", paper.folder, claim.id);
                let is_known = paper.readings.iter().any(|r| r.name == claim.reading);
                assert!(claim.reading.is_empty() || is_known, "{place}: {}", claim.reading);
                let is_declared =
                    claims.iter().any(|c| c.published == claim.published && c.reading.is_empty());
                assert!(is_declared, "{place}: no claim judges its sentence as declared");
            }
        }
    }

    /// A sentence would count twice, in two set-ups.
    #[test]
    fn claims_beyond_the_papers_are_this_project_s() {
        let papers = papers();
        let beyond = papers.figures().filter(|(e, _)| e.paper == beyond::PAPER);
        let beside = papers.testbeds().map(|(e, testbed)| (e, &testbed.figure));
        let all = beyond.chain(beside.filter(|(e, _)| e.paper == beyond::PAPER));
        for (_, figure) in all {
            let papers = figure.claims.iter().find(|claim| claim.published.is_some());
            assert!(papers.is_none(), "{} {:?}", figure.name, papers.map(|c| c.id));
        }
    }

    #[test]
    fn a_claim_is_selected_by_its_name() {
        let papers = papers();
        let (figures, claim) = papers.select_claims("voip-overlay/fig4/overhead", false).unwrap();
        assert_eq!((figures.len(), figures[0].1.name, claim), (1, "fig4", Some("overhead")));
        let (figures, claim) = papers.select_claims("voip-overlay/fig4", false).unwrap();
        assert_eq!((figures.len(), claim), (1, None));
        let said =
            |name, beside| papers.select_claims(name, beside).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            said("voip-overlay/fig4/overhaed", false),
            "voip-overlay/fig4 has no claim \"overhaed\": did you mean \"overhead\"? `trunkline-lab \
             list voip-overlay/fig4` lists them all"
        );
        let live = "beyond/agreement-testbed";
        assert!(said(live, false).contains("did you mean \"beyond/agreement\"?"));
        assert_eq!(papers.select_claims(live, true).unwrap().0[0].1.name, "agreement-testbed");
    }

    #[test]
    fn variants_follow_their_figure() {
        let papers = papers();
        let names: Vec<&str> = papers.figures().map(|(_, figure)| figure.name).collect();
        let at = |name| names.iter().position(|n| *n == name).unwrap();
        for pair in [
            ["detection", "detection-10"],
            ["failover", "failover-50ms"],
            ["fig9b", "fig10"],
            ["fig4b", "fig4b-alone"],
            ["fig4b-alone", "fig4c"],
        ] {
            assert!(at(pair[0]) < at(pair[1]), "{pair:?}: {names:?}");
        }
    }

    #[test]
    fn every_figure_has_a_title_of_its_own() {
        let papers = papers();
        let beside = papers.testbeds().map(|(e, testbed)| (e, &testbed.figure));
        let mut titles: Vec<_> =
            papers.figures().chain(beside).map(|(e, f)| (e.paper, f.title)).collect();
        titles.sort_unstable();
        let twin = titles.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twin, None);
    }

    #[test]
    fn an_unknown_figure_has_a_remedy() {
        let papers = papers();
        let said = |name| papers.find(name).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            said("tfmc/tabl"),
            "there is no figure \"tfmc/tabl\": did you mean \"tfmc/table1\"? \
             `trunkline-lab list` lists them all"
        );
        assert_eq!(
            said("tfmc/table1/delays"),
            "\"delays\" would be a claim of tfmc/table1: a figure is wanted here; `check` and `list` \
             take claims, too"
        );
        let nothing_similar = said("nonsense");
        assert_eq!(
            nothing_similar,
            "there is no figure \"nonsense\": `trunkline-lab list` lists them all"
        );
    }
}
