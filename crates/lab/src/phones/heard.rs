//! Speech as heard at a phone: the packets that arrived in time, played out with concealment, and
//! scored against the recording that the other phone played.

use super::{Error, Rtp};
use std::time::Duration;
use trunkline_media::codec::g711::{Concealing, Law};
use trunkline_media::playout::{Config, Fate, Playout};
use trunkline_media::quality::pesq;

/// Delay beyond the fastest packet's up to which a packet is still played.
const PATIENCE: Duration = Duration::from_millis(60);
/// Length of the speech behind each score.
const PIECE: Duration = Duration::from_secs(8);
/// Samples in a packet.
const FRAME: usize = 160;

/// One direction of a call.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Packets that the speaker's phone sent.
    pub sent: usize,
    /// Packets that did not arrive.
    pub lost: usize,
    /// Packets that arrived too late.
    pub late: usize,
    /// PESQ score of each piece, as P.862 gives it (−0.5 to 4.5).
    pub scores: Vec<f64>,
}

impl Heard {
    /// The mean of the scores; `None` if there are none.
    pub fn score(&self) -> Option<f64> {
        let n = self.scores.len();
        (n > 0).then(|| self.scores.iter().sum::<f64>() / n as f64)
    }

    /// Share of the sent packets that could not be played.
    pub fn missed(&self) -> f64 {
        (self.lost + self.late) as f64 / self.sent.max(1) as f64
    }
}

/// Scores the recording `wav` as the listener heard it: `said` has the packets that left the
/// speaker's phone, and `came` those that reached the listener.
pub fn hear(wav: &[i16], said: &[Rtp], came: &[Rtp]) -> Result<Heard, Error> {
    let first = said.first().ok_or_else(|| Error::Program("a phone sent no packet".into()))?;
    let own: Vec<&Rtp> = said.iter().filter(|rtp| rtp.ssrc == first.ssrc).collect();
    let number = |rtp: &Rtp| rtp.sequence.wrapping_sub(first.sequence);
    let sent = own.iter().map(|rtp| usize::from(number(rtp)) + 1).max().unwrap_or(0);
    // The two captures have clocks with different origins; the fastest packet gives the offset.
    let delay = |rtp: &Rtp| {
        let left = own.iter().find(|s| s.sequence == rtp.sequence)?.at;
        Some(rtp.at.as_secs_f64() - left.as_secs_f64())
    };
    let came: Vec<(&Rtp, f64)> = came
        .iter()
        .filter(|rtp| rtp.ssrc == first.ssrc && usize::from(number(rtp)) < sent)
        .filter_map(|rtp| Some((rtp, delay(rtp)?)))
        .collect();
    let least = came.iter().map(|(_, delay)| *delay).fold(f64::INFINITY, f64::min);
    let mut playout = Playout::new(Config {
        deadline: PATIENCE,
        first_sequence: Some(first.sequence),
        ..Config::default()
    });
    for (rtp, delay) in &came {
        let after = Duration::from_secs_f64((delay - least).max(0.0));
        let taken = playout.receive(rtp.sequence, after, false, &rtp.payload);
        taken.map_err(|error| Error::Program(format!("a packet can't be played: {error}")))?;
    }
    let played = playout.finish(Some(sent), &mut Concealing::new(Law::Mu));
    let spoken = spoken(wav, &own, sent);
    let until = spoken.len().min(played.pcm.len());
    let scores = pesq::segments(&spoken[..until], &played.pcm[..until], PIECE);
    let scores =
        scores.map_err(|error| Error::Program(format!("a call can't be scored: {error}")))?;
    Ok(Heard {
        sent,
        lost: played.count(Fate::Lost),
        late: played.count(Fate::Late),
        scores: scores.into_iter().flatten().map(|score| score.raw).collect(),
    })
}

/// The original speech, sample by sample: from the file, where the phone began to play it; if that
/// position isn't found, from the packets that it sent.
fn spoken(wav: &[i16], own: &[&Rtp], sent: usize) -> Vec<i16> {
    let mut codes = vec![Law::Mu.encode(0); sent * FRAME];
    for rtp in own {
        let at = usize::from(rtp.sequence.wrapping_sub(own[0].sequence)) * FRAME;
        if let Some(room) = codes.get_mut(at..at + rtp.payload.len().min(FRAME)) {
            room.copy_from_slice(&rtp.payload[..room.len()]);
        }
    }
    let mut file = Vec::new();
    Law::Mu.encode_to(wav, &mut file);
    // A tenth of a second that isn't silence occurs only once in the file.
    let is_speech = |piece: &&[u8]| piece.iter().any(|code| Law::Mu.decode(*code).abs() > 2_000);
    let (n, piece) =
        codes.chunks_exact(800).enumerate().find(|(_, piece)| is_speech(piece)).unzip();
    let found = piece.and_then(|piece| file.windows(piece.len()).position(|w| w == piece));
    match (n, found) {
        (Some(n), Some(place)) if place >= n * 800 => wav[place - n * 800..].to_vec(),
        _ => codes.iter().map(|code| Law::Mu.decode(*code)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};
    use trunkline_media::audio::read_wav;

    fn call(wav: &[i16], begins: usize) -> Vec<Rtp> {
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let one = |(n, frame): (usize, &[i16])| {
            let mut payload = Vec::new();
            Law::Mu.encode_to(frame, &mut payload);
            Rtp {
                at: Duration::from_millis(n as u64 * 20),
                from: nobody,
                to: nobody,
                sequence: 65_500u16.wrapping_add(n as u16),
                timestamp: n as u32 * 160,
                payload_type: 0,
                ssrc: 7,
                payload,
            }
        };
        wav[begins..].chunks_exact(FRAME).enumerate().map(one).collect()
    }

    fn voice() -> Vec<i16> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../speech/en-allison.wav");
        let bytes = std::fs::read(path).expect("the project's speech");
        read_wav(&bytes[..]).expect("a recording")[..16 * 8_000].to_vec()
    }

    #[test]
    fn what_is_lost_or_late_is_heard() {
        let wav = voice();
        let said = call(&wav, 320);
        let heard = hear(&wav, &said, &said).unwrap();
        assert_eq!((heard.sent, heard.lost, heard.late), (said.len(), 0, 0));
        let good = heard.score().unwrap();
        let mut came = said.clone();
        came.retain(|rtp| rtp.sequence % 10 != 3);
        came[50].at += PATIENCE + Duration::from_millis(1);
        came.iter_mut().for_each(|rtp| rtp.at += Duration::from_secs(3));
        let heard = hear(&wav, &said, &came).unwrap();
        assert_eq!((heard.lost, heard.late), (said.len() - came.len(), 1));
        assert!(heard.score().unwrap() < good - 0.3, "{good} {heard:?}");
    }

    #[test]
    fn the_file_is_found_in_what_was_sent() {
        let wav = voice();
        let said = call(&wav, 480);
        let own: Vec<&Rtp> = said.iter().collect();
        assert_eq!(spoken(&wav, &own, said.len())[..100], wav[480..580]);
    }
}
