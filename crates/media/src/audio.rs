//! Reading and writing WAV files of telephone speech: 8 kHz, mono, 16 bits.

use std::io::{self, Read, Seek, Write};

use audioadapter_buffers::direct::InterleavedSlice;
use hound::{SampleFormat, WavReader, WavSpec, WavWriter};
use rubato::{
    Async, FixedAsync, Indexing, Resampler, SincInterpolationParameters, SincInterpolationType,
    WindowFunction, calculate_cutoff,
};

/// Sample rate of everything in this crate, in samples per second.
pub const RATE: u32 = 8_000;
/// Maximum length of a recording to read or write, in hours.
pub const MAX_HOURS: u32 = 4;

const MAX_CHANNELS: u16 = 64;
/// Supported sample rates. Below the lowest, one byte of a file would grow to many samples; above
/// the highest, the resampler's filter would grow. No recorder is outside this range.
const RATES: core::ops::RangeInclusive<u32> = 1_000..=768_000;
const MAX_SAMPLES: usize = (MAX_HOURS * 3600 * RATE) as usize;
/// Frames per call of the resampler.
const CHUNK: usize = 1024;

/// Errors in reading or writing a WAV file.
#[derive(Debug, thiserror::Error)]
pub enum WavError {
    /// Reading or writing the bytes failed.
    #[error("the WAV file could not be read or written: {0}")]
    Io(#[source] io::Error),
    /// The bytes are not a WAV file.
    #[error("this is not a valid WAV file: {0}; export it again as 16-bit PCM")]
    Malformed(&'static str),
    /// The samples are not PCM of 8, 16, 24 or 32 bits, or 32-bit floats.
    #[error("this WAV file's samples are {0}; convert it to 16-bit PCM")]
    Unsupported(String),
    /// The file ends within its header or its samples.
    #[error(
        "this WAV file is cut short: it ends after {seconds:.1} s of sound, earlier than its header states; fetch or record it again"
    )]
    Truncated {
        /// Sound that could be read, in seconds.
        seconds: f64,
    },
    /// The file has no samples.
    #[error("this WAV file holds no sound: choose a longer recording")]
    Empty,
    /// The sample rate is below 1,000 or above 768,000 samples per second.
    #[error("this WAV file claims {0} samples per second: between 1000 and 768000 can be read")]
    Rate(u32),
    /// The file has more than 64 channels.
    #[error("this WAV file claims {0} channels: at most 64 can be mixed to one")]
    Channels(u16),
    /// The recording is longer than [`MAX_HOURS`].
    #[error(
        "this recording lasts {hours:.1} h by its header: cut it to {MAX_HOURS} h or less (a recorder that was stopped short may have left the length wrong)"
    )]
    TooLong {
        /// Length according to the header, in hours.
        hours: f64,
    },
}

/// Reads a WAV file of any common rate and width, mixes its channels down to their mean and
/// resamples it to [`RATE`].
///
/// A file that is already 8 kHz, mono and 16 bits is returned bit for bit; other rates pass a
/// filter that is flat to 3.4 kHz. Samples are read one by one, so wrap a file in a
/// [`std::io::BufReader`]. Memory grows with the sound that is read, never with what a header
/// claims.
pub fn read_wav<R: Read>(reader: R) -> Result<Vec<i16>, WavError> {
    let mut ended = false;
    let input = Input { reader, ended: &mut ended };
    let mut wav = match WavReader::new(input) {
        Ok(wav) => wav,
        Err(e) => return Err(explain(e, ended, 0.0)),
    };
    let spec = wav.spec();
    check(&spec, wav.duration())?;

    let mut sink = Sink::new(spec.sample_rate);
    let outcome = match spec.sample_format {
        SampleFormat::Float => {
            mix(wav.samples::<f32>().map(|s| s.map(f64::from)), &spec, &mut sink)
        }
        SampleFormat::Int => {
            let full_scale = f64::from(1u32 << (spec.bits_per_sample - 1));
            mix(
                wav.samples::<i32>().map(|s| s.map(|s| f64::from(s) / full_scale)),
                &spec,
                &mut sink,
            )
        }
    };
    drop(wav);
    match outcome {
        Ok(()) => Ok(sink.finish()),
        Err(e) => Err(explain(e, ended, sink.frames as f64 / f64::from(spec.sample_rate))),
    }
}

/// Writes `pcm` as a WAV file of [`RATE`], mono, 16 bits.
pub fn write_wav<W: Write + Seek>(writer: W, pcm: &[i16]) -> Result<(), WavError> {
    if pcm.len() > MAX_SAMPLES {
        return Err(WavError::TooLong { hours: hours(pcm.len() as f64, RATE) });
    }
    let spec = WavSpec {
        channels: 1,
        sample_rate: RATE,
        bits_per_sample: 16,
        sample_format: SampleFormat::Int,
    };
    let write = || {
        let mut wav = WavWriter::new(writer, spec)?;
        let mut samples = wav.get_i16_writer(pcm.len() as u32);
        for &sample in pcm {
            samples.write_sample(sample);
        }
        samples.flush()?;
        wav.finalize()
    };
    write().map_err(|e| explain(e, false, 0.0))
}

fn hours(frames: f64, rate: u32) -> f64 {
    frames / f64::from(rate) / 3600.0
}

fn check(spec: &WavSpec, frames: u32) -> Result<(), WavError> {
    if !RATES.contains(&spec.sample_rate) {
        return Err(WavError::Rate(spec.sample_rate));
    }
    if spec.channels > MAX_CHANNELS {
        return Err(WavError::Channels(spec.channels));
    }
    match (spec.sample_format, spec.bits_per_sample) {
        (SampleFormat::Int, 8 | 16 | 24 | 32) | (SampleFormat::Float, 32) => {}
        (format, bits) => {
            let kind = if format == SampleFormat::Int { "integers" } else { "floats" };
            return Err(WavError::Unsupported(format!("{kind} of {bits} bits")));
        }
    }
    let hours = hours(f64::from(frames), spec.sample_rate);
    if hours > f64::from(MAX_HOURS) {
        return Err(WavError::TooLong { hours });
    }
    if frames == 0 { Err(WavError::Empty) } else { Ok(()) }
}

/// Converts hound's error, which does not distinguish the end of the file from other failures;
/// hence `ended`, and the number of `seconds` read before.
fn explain(error: hound::Error, ended: bool, seconds: f64) -> WavError {
    match error {
        hound::Error::IoError(_) if ended => WavError::Truncated { seconds },
        hound::Error::IoError(e) => WavError::Io(e),
        hound::Error::FormatError(what) => WavError::Malformed(what),
        _ => WavError::Unsupported("not plain PCM".to_owned()),
    }
}

/// A reader that records whether it has reached its end.
struct Input<'a, R> {
    reader: R,
    ended: &'a mut bool,
}

impl<R: Read> Read for Input<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.reader.read(buf) {
                // hound would report this as a failure.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) if !buf.is_empty() => {
                    *self.ended = true;
                    return Ok(0);
                }
                other => return other,
            }
        }
    }
}

/// Feeds the mean of each frame's channels to `sink`.
fn mix(
    mut samples: impl Iterator<Item = hound::Result<f64>>,
    spec: &WavSpec,
    sink: &mut Sink,
) -> hound::Result<()> {
    let channels = f64::from(spec.channels);
    while let Some(first) = samples.next() {
        let mut sum = first?;
        for other in samples.by_ref().take(usize::from(spec.channels) - 1) {
            sum += other?;
        }
        sink.push(sum / channels);
    }
    Ok(())
}

/// Receives frames at the file's rate and stores samples at [`RATE`].
struct Sink {
    /// `None` if the file has [`RATE`] already.
    resampler: Option<Async<f64>>,
    rate: u32,
    /// Number of frames received.
    frames: u64,
    chunk: Vec<f64>,
    resampled: Vec<f64>,
    /// Leading samples still to drop, which the filter adds.
    delay: usize,
    pcm: Vec<i16>,
}

impl Sink {
    fn new(rate: u32) -> Sink {
        let (resampler, delay) = match rate {
            RATE => (None, 0),
            _ => {
                let (resampler, delay) = resampler(rate);
                (Some(resampler), delay)
            }
        };
        let room = resampler.as_ref().map_or(0, |r| r.output_frames_max());
        Sink {
            resampler,
            rate,
            frames: 0,
            chunk: Vec::with_capacity(CHUNK),
            resampled: vec![0.0; room],
            delay,
            pcm: Vec::new(),
        }
    }

    /// Adds one frame, full scale ±1. NaN becomes silence; values beyond full scale are clipped, as
    /// a recorder would do.
    fn push(&mut self, sample: f64) {
        self.frames += 1;
        let sample = if sample.is_nan() { 0.0 } else { sample.clamp(-1.0, 1.0) };
        if self.resampler.is_none() {
            self.pcm.push(quantize(sample));
            return;
        }
        self.chunk.push(sample);
        if self.chunk.len() == CHUNK {
            self.resample(usize::MAX);
        }
    }

    /// Resamples `chunk`, padded with silence, and keeps at most `most` samples of the result.
    fn resample(&mut self, most: usize) {
        let Some(resampler) = &mut self.resampler else { return };
        let valid = self.chunk.len();
        self.chunk.resize(CHUNK, 0.0);
        let room = self.resampled.len();
        let output = InterleavedSlice::new_mut(&mut self.resampled, 1, room);
        let input = InterleavedSlice::new(&self.chunk, 1, CHUNK);
        let (Ok(input), Ok(mut output)) = (input, output) else {
            unreachable!("both slices are as long as stated")
        };
        let part = Indexing::new().partial_len(valid);
        let (_, made) = resampler
            .process_into_buffer(&input, &mut output, Some(&part))
            .expect("one channel, and buffers of the sizes that the resampler gave");
        self.chunk.clear();
        let drop = self.delay.min(made);
        self.delay -= drop;
        self.pcm.extend(self.resampled[drop..made].iter().take(most).map(|&s| quantize(s)));
    }

    /// Returns all samples: as many as the file lasts at [`RATE`].
    fn finish(mut self) -> Vec<i16> {
        let whole = (self.frames * u64::from(RATE)).div_ceil(u64::from(self.rate)) as usize;
        while self.pcm.len() < whole {
            self.resample(whole - self.pcm.len());
        }
        self.pcm.truncate(whole);
        self.pcm
    }
}

/// A windowed sinc filter, flat to 3.4 kHz and 90 dB down from 4 kHz on (for slower files, the same
/// fractions of half their rate). It uses 64-bit floats, so that processors with different vector
/// widths, which sum in different orders, round to the same 16 bits.
///
/// Also returns the number of samples that the filter puts before the first: half its length, less
/// one, as the first sample is taken one step ahead (rubato's own `output_delay` misses that step).
fn resampler(rate: u32) -> (Async<f64>, usize) {
    /// Number of taps at the lower of the two rates.
    const TAPS: usize = 128;
    const WINDOW: WindowFunction = WindowFunction::Blackman2;
    let ratio = f64::from(RATE) / f64::from(rate);
    // The filter's width follows from the transition from 3.4 to 4 kHz, so it is measured in
    // samples at our rate, however fast the file.
    let wider = rate.div_ceil(RATE) as usize;
    // A wider filter needs fewer points between taps: the table stays at 32,768 numbers, whatever
    // the file claims.
    let points = (256 / wider).max(8);
    let cutoff: f32 = calculate_cutoff(TAPS, WINDOW);
    let parameters = SincInterpolationParameters::new(TAPS * wider, WINDOW)
        .f_cutoff(cutoff)
        .oversampling_factor(points)
        .interpolation(SincInterpolationType::Linear);
    let resampler = Async::new_sinc(ratio, 1.0, &parameters, CHUNK, 1, FixedAsync::Input)
        .expect("the ratio of two rates in range, and a fixed chunk");
    let half = libm::round((TAPS * wider) as f64 / 2.0 * ratio);
    (resampler, half as usize - 1)
}

fn quantize(sample: f64) -> i16 {
    // The cast saturates.
    libm::round(sample * 32_768.0) as i16
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::f64::consts::TAU;
    use proptest::prelude::*;
    use std::io::Cursor;

    const FLOAT: (SampleFormat, u16) = (SampleFormat::Float, 32);

    /// A tone in every channel, at `amplitude` of full scale.
    fn tone(
        (format, bits): (SampleFormat, u16),
        rate: u32,
        channels: u16,
        hz: f64,
        amplitude: f64,
    ) -> Vec<u8> {
        let spec =
            WavSpec { channels, sample_rate: rate, bits_per_sample: bits, sample_format: format };
        let mut bytes = Cursor::new(Vec::new());
        let mut wav = WavWriter::new(&mut bytes, spec).unwrap();
        for n in 0..rate {
            let x = amplitude * (TAU * hz * f64::from(n) / f64::from(rate)).sin();
            for _ in 0..channels {
                match format {
                    SampleFormat::Float => wav.write_sample(x as f32).unwrap(),
                    SampleFormat::Int => {
                        let full = f64::from(u32::MAX >> (33 - bits));
                        wav.write_sample((x * full).round() as i32).unwrap();
                    }
                }
            }
        }
        wav.finalize().unwrap();
        bytes.into_inner()
    }

    /// The samples away from the ends, where the filter meets silence.
    fn middle(pcm: &[i16]) -> &[i16] {
        &pcm[1000..7000]
    }

    fn rms(pcm: &[i16]) -> f64 {
        (pcm.iter().map(|&s| f64::from(s).powi(2)).sum::<f64>() / pcm.len() as f64).sqrt()
    }

    /// Fits a tone of `hz`: its amplitude (full scale 1), its delay in samples, and the RMS of the
    /// remainder (in 16-bit units).
    fn fit(pcm: &[i16], hz: f64) -> (f64, f64, f64) {
        let angle = |n: usize| TAU * hz * n as f64 / 8_000.0;
        let part = |f: fn(f64) -> f64| {
            let sum: f64 = (1000..7000).map(|n| f64::from(pcm[n]) * f(angle(n))).sum();
            sum / 3_000.0
        };
        let (sine, cosine) = (part(f64::sin), part(f64::cos));
        let rest: f64 = (1000..7000)
            .map(|n| f64::from(pcm[n]) - sine * angle(n).sin() - cosine * angle(n).cos())
            .map(|e| e * e)
            .sum();
        let late = -cosine.atan2(sine) / TAU * 8_000.0 / hz;
        (sine.hypot(cosine) / 32_768.0, late, (rest / 6_000.0).sqrt())
    }

    #[test]
    fn a_tone_stays_that_tone_in_level_and_phase() {
        for (format, rate, channels) in [
            (FLOAT, 44_100, 2),
            (FLOAT, 8_000, 1),
            ((SampleFormat::Int, 16), 48_000, 1),
            ((SampleFormat::Int, 24), 96_000, 6),
            ((SampleFormat::Int, 32), 11_025, 1),
            ((SampleFormat::Int, 16), 4_000, 1),
            ((SampleFormat::Int, 16), 44_101, 1),
            ((SampleFormat::Int, 16), 384_000, 1),
        ] {
            let pcm = read_wav(&tone(format, rate, channels, 1_000.0, 0.5)[..]).unwrap();
            assert_eq!(pcm.len(), 8_000, "{rate} Hz");
            let (amplitude, late, rest) = fit(&pcm, 1_000.0);
            let what = format!("{rate} Hz: {amplitude} of full scale, {late} late, {rest} RMS");
            assert!((amplitude - 0.5).abs() < 0.001, "{what}");
            assert!(late.abs() < 0.51, "{what}");
            assert!(rest < 1.0, "{what}");
        }
        // 8 bits are coarse: half a step is 128.
        let pcm = read_wav(&tone((SampleFormat::Int, 8), 16_000, 2, 1_000.0, 0.5)[..]).unwrap();
        let (amplitude, _, rest) = fit(&pcm, 1_000.0);
        assert!((amplitude - 0.5).abs() < 0.005 && rest < 100.0, "{amplitude} {rest}");
    }

    #[test]
    fn the_telephone_band_is_kept_and_what_would_fold_into_it_is_not() {
        let level = |rate, hz| {
            let pcm = read_wav(&tone(FLOAT, rate, 1, hz, 0.9)[..]).unwrap();
            20.0 * (rms(middle(&pcm)) / (0.9 * 32_768.0 / 2f64.sqrt())).log10()
        };
        for rate in [16_000, 44_100] {
            for hz in [300.0, 3_000.0, 3_400.0] {
                assert!(level(rate, hz).abs() < 0.2, "{hz} Hz from {rate}: {} dB", level(rate, hz));
            }
            for hz in [4_100.0, 4_700.0, 6_000.0, 7_900.0] {
                assert!(level(rate, hz) < -75.0, "{hz} Hz from {rate}: {} dB", level(rate, hz));
            }
        }
    }

    #[test]
    fn what_is_written_is_read_bit_by_bit() {
        let pcm: Vec<i16> = (i16::MIN..=i16::MAX).collect();
        let mut bytes = Cursor::new(Vec::new());
        write_wav(&mut bytes, &pcm).unwrap();
        assert_eq!(read_wav(&bytes.get_ref()[..]).unwrap(), pcm);
        let mut empty = Cursor::new(Vec::new());
        write_wav(&mut empty, &[]).unwrap();
        assert!(matches!(read_wav(&empty.get_ref()[..]), Err(WavError::Empty)));
    }

    #[test]
    fn channels_are_averaged() {
        let spec = WavSpec {
            channels: 2,
            sample_rate: RATE,
            bits_per_sample: 16,
            sample_format: SampleFormat::Int,
        };
        let mut bytes = Cursor::new(Vec::new());
        let mut wav = WavWriter::new(&mut bytes, spec).unwrap();
        for sample in [1000i16, 3000, -500, 500] {
            wav.write_sample(sample).unwrap();
        }
        wav.finalize().unwrap();
        assert_eq!(read_wav(&bytes.get_ref()[..]).unwrap(), [2000, 0]);
    }

    #[test]
    fn short_files_keep_their_length() {
        for n in [1u32, 2, 5, 100, 1023, 1024, 1025] {
            let mut bytes = tone((SampleFormat::Int, 16), 44_100, 1, 440.0, 0.5);
            bytes.truncate(44 + 2 * n as usize);
            bytes[40..44].copy_from_slice(&(2 * n).to_le_bytes());
            let want = (n as usize * 8_000).div_ceil(44_100);
            assert_eq!(read_wav(&bytes[..]).unwrap().len(), want, "{n} frames");
        }
    }

    /// The header of a WAV file that announces `data` bytes of 16-bit samples, without the samples.
    fn header(channels: u16, rate: u32, data: u32) -> Vec<u8> {
        let block = channels.wrapping_mul(2);
        let mut h = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0".to_vec();
        h.extend(channels.to_le_bytes());
        h.extend(rate.to_le_bytes());
        h.extend(rate.wrapping_mul(u32::from(block)).to_le_bytes());
        h.extend(block.to_le_bytes());
        h.extend(16u16.to_le_bytes());
        h.extend(b"data");
        h.extend(data.to_le_bytes());
        h
    }

    #[test]
    fn absurd_files_are_named_as_such() {
        let read = |bytes: &[u8]| read_wav(bytes).unwrap_err();
        assert!(matches!(read(b""), WavError::Truncated { .. }));
        assert!(matches!(read(b"ID3 an MP3, really"), WavError::Malformed(_)));
        assert!(matches!(read(&header(1, 0, 100)), WavError::Rate(0)));
        assert!(matches!(read(&header(1, 1_000_000, 100)), WavError::Rate(1_000_000)));
        assert!(matches!(read(&header(65, 8_000, 130)), WavError::Channels(65)));
        assert!(matches!(read(&header(0, 8_000, 100)), WavError::Malformed(_)));
        assert!(matches!(read(&header(1, 8_000, 0)), WavError::Empty));
        let Err(WavError::TooLong { hours }) = read_wav(&header(1, 8_000, u32::MAX - 1)[..]) else {
            panic!()
        };
        assert!((hours - 74.6).abs() < 0.1);
        // Three hours claimed, 1,000 samples present: an error, without allocating 170 MB.
        let mut cut = header(1, 8_000, 3 * 3600 * 16_000);
        cut.extend([0; 2_000]);
        let Err(WavError::Truncated { seconds }) = read_wav(&cut[..]) else { panic!() };
        assert_eq!(seconds, 0.125);
        // A-law inside a WAV file: a known format, but not supported here.
        let mut alaw = header(1, 8_000, 100);
        alaw[20] = 6;
        assert!(matches!(read(&alaw), WavError::Unsupported(_)));
    }

    #[test]
    fn a_failing_reader_is_not_taken_for_a_short_file() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("disk on fire"))
            }
        }
        let cut = header(1, 8_000, 1_000);
        assert!(matches!(read_wav(cut.chain(Fails)), Err(WavError::Io(_))));
    }

    #[test]
    fn floats_that_are_no_sound_harm_only_their_own_place() {
        for (odd, most) in [(f32::NAN, 1.0), (f32::INFINITY, 300.0), (-1e30, 300.0)] {
            let mut bytes = tone(FLOAT, 16_000, 1, 400.0, 0.5);
            let middle = bytes.len() - 4 * 8_000; // where the tone crosses zero
            bytes[middle..][..4].copy_from_slice(&odd.to_le_bytes());
            let (amplitude, _, rest) = fit(&read_wav(&bytes[..]).unwrap(), 400.0);
            assert!((amplitude - 0.5).abs() < 0.001, "{odd}: {amplitude}");
            assert!(rest < most, "{odd}: {rest}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn any_bytes_are_sound_or_an_error(
            head in proptest::collection::vec((0usize..48, any::<u8>()), 0..6),
            tail in proptest::collection::vec(any::<u8>(), 0..300), plain: bool,
        ) {
            let mut bytes = header(1, 8_000, tail.len() as u32 & !1);
            for (at, value) in head {
                if let Some(b) = bytes.get_mut(at) {
                    *b = value;
                }
            }
            if plain {
                bytes.clear();
            }
            bytes.extend(&tail);
            if let Ok(pcm) = read_wav(&bytes[..]) {
                prop_assert!(pcm.len() <= 8 * bytes.len());
            }
        }
    }
}
