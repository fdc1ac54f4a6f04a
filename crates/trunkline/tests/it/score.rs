//! `trunkline score` and `trunkline call recv --score`.

use crate::common::{Process, free_port, run, temp_dir, trunkline};
use serde_json::Value;
use std::fs::File;
use std::io::BufWriter;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use trunkline_media::audio::{read_wav, write_wav};

/// Returns the first `seconds` of the speech in the repository.
fn speech(seconds: usize) -> Vec<i16> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../speech/ru-ivrvoice.wav");
    let mut pcm = read_wav(&std::fs::read(path).expect("it ships")[..]).expect("a WAV file");
    pcm.truncate(seconds * 8_000);
    pcm
}

fn save(dir: &Path, name: &str, pcm: &[i16]) -> PathBuf {
    let path = dir.join(name);
    write_wav(BufWriter::new(File::create(&path).expect("created")), pcm).expect("written");
    path
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn two_files() {
    let dir = temp_dir();
    let said = speech(25);
    let mut heard = said.clone();
    heard[..100_000].chunks_mut(160).step_by(10).for_each(|packet| packet.fill(0));
    let (said, heard) =
        (save(dir.path(), "said.wav", &said), save(dir.path(), "heard.wav", &heard));

    let same = run(trunkline(["score", "--json"]).args([&said, &said]));
    let same = json(&same.stdout);
    assert_eq!(same["whole"]["raw"], 4.5);
    assert_eq!(same["scores"], serde_json::json!([4.5, 4.5]));
    assert_eq!(same["pesq"]["segments"], 2);

    let ended = run(trunkline(["score", "--json"]).args([&said, &heard]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let worse = json(&ended.stdout);
    assert!(worse["scores"][0].as_f64() < Some(3.0), "{worse}");
    assert_eq!(worse["scores"][1], 4.5);
    assert_eq!(worse["pesq"]["p5"], worse["scores"][0]);
    assert!(worse["whole"]["raw"].as_f64() < Some(4.0), "{worse}");
    let text = run(trunkline(["score"]).args([&said, &heard])).stdout;
    assert!(text.contains("the whole 25.0 s: PESQ ") && text.contains("2 segments: "), "{text}");

    let long = save(dir.path(), "long.wav", &speech(40));
    assert!(
        json(&run(trunkline(["score", "--json"]).args([&long, &long])).stdout)["whole"].is_null()
    );
}

#[test]
fn mistakes_are_told() {
    let dir = temp_dir();
    let said = save(dir.path(), "said.wav", &speech(4));
    let silent = save(dir.path(), "silent.wav", &[0; 32_000]);
    let short = save(dir.path(), "short.wav", &speech(3));
    let tiny = save(dir.path(), "tiny.wav", &speech(4)[..800]);
    let absent = dir.path().join("absent.wav");
    for (reference, degraded, code, why) in [
        (&said, &silent, 1, "silent.wav: the degraded recording is silent"),
        (&silent, &said, 1, "the reference recording is silent"),
        (&said, &short, 1, "32000 samples and the degraded recording 24000"),
        (&tiny, &tiny, 1, "800 samples are too short"),
        (&said, &absent, 2, "absent.wav: No such file"),
    ] {
        let ended = run(trunkline(["score"]).args([reference, degraded]));
        assert!(ended.one_line(code).contains(why), "{}", ended.stderr);
    }
}

#[test]
fn a_call_is_scored() {
    let dir = temp_dir();
    let said = save(dir.path(), "said.wav", &speech(2)[..15_900]);
    let at = free_port(Ipv4Addr::LOCALHOST.into());
    let mut listener = Process::start(
        trunkline(["call", "recv", "--udp", "--listen", "127.0.0.1", "--idle", "500ms", "--json"])
            .args(["--port", &at.port().to_string(), "--score"])
            .arg(&said),
    );
    listener.wait_for_word("listening on");
    // Plays the file twice, and a bit more.
    let mut send = trunkline(["call", "send", "--udp", "--duration", "4.5s", "--to"]);
    let sent = run(send.arg(at.to_string()).arg(&said));
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let report = json(&listener.rest().0);
    let mean = report["pesq"]["mean"].as_f64();
    // Only the codec degrades it: 4.3 on the whole recording.
    assert!(mean > Some(4.1) && mean < Some(4.5), "{report}");
    let absent =
        run(&mut trunkline(["call", "recv", "--udp", "--port", "0", "--score", "absent.wav"]));
    assert!(absent.one_line(2).contains("cannot read absent.wav: "), "{}", absent.stderr);
}
