//! Voices of a demo: built-in recordings, or the user's.

use super::{Args, Error, cannot};
use crate::call;
use clap::ValueEnum;
use std::path::PathBuf;
use trunkline_media::audio::read_wav;
use trunkline_media::telephone;

/// The built-in recordings, filtered as by a telephone; speech/README.md lists their sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// Ten readers of LibriSpeech, who also appear in the lab's figures
    Librispeech,
    /// English, Spanish, French, Italian and Russian speakers
    Languages,
}

/// A recording and the name of its speaker.
pub struct Voice {
    pub name: String,
    pub pcm: Vec<i16>,
}

/// A built-in recording: a WAV file, and the speaker.
type BuiltIn = (&'static [u8], &'static str);

/// The first ten of the lab's 22 recordings, one for each call of a default demo. All of them would
/// add another 3 MB to the program.
const LIBRISPEECH: [BuiltIn; 10] = [
    (include_bytes!("../../../../speech/librispeech/87-121553-0000.wav"), "Rosalind Wills"),
    (include_bytes!("../../../../speech/librispeech/3374-298025-0000.wav"), "Craig Campbell"),
    (include_bytes!("../../../../speech/librispeech/302-123504-0000.wav"), "Chris Peterson"),
    (include_bytes!("../../../../speech/librispeech/5750-100289-0000.wav"), "laurencetrask"),
    (include_bytes!("../../../../speech/librispeech/1116-132847-0000.wav"), "Megan Stemm-Wade"),
    (include_bytes!("../../../../speech/librispeech/5808-48608-0000.wav"), "jeandelfrio"),
    (include_bytes!("../../../../speech/librispeech/2836-5354-0000.wav"), "Linda McDaniel"),
    (include_bytes!("../../../../speech/librispeech/6367-65536-0000.wav"), "Vince Dee"),
    (include_bytes!("../../../../speech/librispeech/3235-11599-0000.wav"), "Karen Commins"),
    (include_bytes!("../../../../speech/librispeech/7264-92310-0000.wav"), "Sean McClain"),
];

const LANGUAGES: [BuiltIn; 5] = [
    (include_bytes!("../../../../speech/en-allison.wav"), "Allison Smith, English"),
    (include_bytes!("../../../../speech/es-allison.wav"), "Allison Smith, Spanish"),
    (include_bytes!("../../../../speech/fr-june.wav"), "June Wallack, French"),
    (include_bytes!("../../../../speech/it-carlo.wav"), "Carlo Flora, Italian"),
    (include_bytes!("../../../../speech/ru-ivrvoice.wav"), "ivrvoice.ru, Russian"),
];

impl Set {
    /// Name of the set on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Set::Librispeech => "librispeech",
            Set::Languages => "languages",
        }
    }

    /// Attribution that the licences require.
    pub fn credit(self) -> &'static str {
        match self {
            Set::Librispeech => {
                "The recordings are from LibriSpeech, © 2014 by Vassil Panayotov, under CC BY 4.0 \
                 (https://creativecommons.org/licenses/by/4.0/), resampled, sent through a \
                 telephone's filter and levelled."
            }
            Set::Languages => {
                "The recordings are prompts of the Asterisk telephone exchange: those by Allison \
                 Smith and June Wallack under CC BY-SA 3.0 \
                 (https://creativecommons.org/licenses/by-sa/3.0/), those by Carlo Flora and \
                 ivrvoice.ru under CC BY 3.0 (https://creativecommons.org/licenses/by/3.0/), cut, \
                 joined, sent through a telephone's filter and levelled."
            }
        }
    }

    fn files(self) -> &'static [BuiltIn] {
        match self {
            Set::Librispeech => &LIBRISPEECH,
            Set::Languages => &LANGUAGES,
        }
    }

    fn voices(self) -> Vec<Voice> {
        let voice = |&(wav, name): &BuiltIn| {
            let recorded = read_wav(wav).expect("the files that ship are read by a test");
            let sent = telephone::sent(&recorded).expect("and somebody speaks in each");
            Voice { name: name.into(), pcm: sent.pcm }
        };
        self.files().iter().map(voice).collect()
    }
}

/// The recordings to play, one per voice. The user's are played unfiltered.
pub fn voices(args: &Args) -> Result<Vec<Voice>, Error> {
    let Some(path) = &args.speech else { return Ok(args.voices.voices()) };
    let mut files = vec![path.clone()];
    if path.is_dir() {
        let listed = std::fs::read_dir(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(cannot(format!("list {}", path.display())))?;
        files = listed.into_iter().map(|entry| entry.path()).collect();
        files.retain(|f| f.extension().is_some_and(|e| e.eq_ignore_ascii_case("wav")));
        files.sort();
        if files.is_empty() {
            return Err(Error::Usage(format!("there is no .wav file in {}", path.display())));
        }
    }
    let voice = |f: &PathBuf| {
        let name = f.file_name().unwrap_or(f.as_os_str()).to_string_lossy().into_owned();
        Ok(Voice { name, pcm: call::read_wav(f)? })
    };
    files.iter().map(voice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use trunkline_media::level;

    /// The third column of the table in speech/README.md is the reader.
    #[test]
    fn the_readers_are_the_first_ten_of_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../speech");
        let page = std::fs::read_to_string(root.join("README.md")).expect("the page");
        let rows = page.lines().filter(|line| line.contains("-0000.wav` |"));
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split(" | ").collect()).collect();
        assert_eq!(rows.len(), 22);
        for (row, (wav, name)) in rows.iter().zip(LIBRISPEECH) {
            let file = row[0].trim_matches(['|', ' ', '`']);
            let there = std::fs::read(root.join("librispeech").join(file)).expect("the file");
            assert!(row[2] == name && there == wav, "{file}: {name}");
        }
    }

    #[test]
    fn what_is_built_in_is_heard_at_one_level() {
        for set in [Set::Librispeech, Set::Languages] {
            for voice in set.voices() {
                let level = level::of(&voice.pcm).expect("speech").active;
                // P.56 interpolates between fixed thresholds, and scaled speech lies elsewhere
                // between them.
                assert!((level - telephone::LEVEL).abs() < 0.1, "{}: {level}", voice.name);
                assert!(voice.pcm.len() >= 12 * 8_000, "{}: no whole segment", voice.name);
            }
        }
    }
}
