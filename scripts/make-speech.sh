#!/usr/bin/env bash
# Makes the recordings in speech/: five languages, four voices, a good minute each.
# speech/README.md gives the source of the recordings in speech/librispeech.
#
#   scripts/make-speech.sh [OUT_DIR]        (default: speech/ next to this folder)
#
# Fetches Debian's packages of recorded Asterisk prompts. For each language it joins
# the longer prompts, with gaps of 0.4 s, until there are 64 s, and scales the file to an
# active level of -26 dBov: 8 kHz, mono, 16 bit PCM WAV. The licence texts are also
# from the packages. Prompts are chosen by length and then by name, so the same
# packages always give the same files.
#
# Needs a Debian or Ubuntu machine (apt-get, dpkg-deb) and python3, but not root.
# Installs nothing.
set -euo pipefail

out=$(realpath -m "${1:-$(dirname "$0")/../speech}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/root"

cd "$work"
for lang in en es fr it ru; do
    apt-get -o APT::Sandbox::User=root download "asterisk-core-sounds-$lang-wav" || {
        echo "make-speech: cannot fetch asterisk-core-sounds-$lang-wav;" \
             "run 'apt-get update' and check the network" >&2
        exit 1
    }
done
for deb in *.deb; do
    sha256sum "$deb"
    dpkg-deb --extract "$deb" root
done

# Prints the text of a licence in a Debian copyright file. One leading space is removed,
# and a lone dot is an empty line. The same "License:" line may also appear without a
# text, under a "Files:" paragraph, so the longest body is used.
licence_text() {
    awk -v want="License: $1" '
        function keep() { if (length(body) > length(best)) best = body; body = "" }
        $0 == want { keep(); inside = 1; next }
        inside && !/^ / { keep(); inside = 0 }
        inside { sub(/^ /, ""); if ($0 == ".") $0 = ""; body = body $0 "\n" }
        END { keep(); printf "%s", best }
    ' root/usr/share/doc/asterisk-core-sounds-en-wav/copyright
}
for id in CC-BY-SA-3.0 CC-BY-3.0; do
    licence_text "$id" > "$out/LICENSE-$id.txt"
    [ "$(wc -l < "$out/LICENSE-$id.txt")" -gt 100 ] || {
        echo "make-speech: no text of $id in the packages' copyright file" >&2
        exit 1
    }
done

python3 - root/usr/share/asterisk/sounds "$out" <<'PYTHON'
import array, math, pathlib, sys, wave

RATE = 8000
FRAME = RATE // 50                 # 20 ms
GAP = [0] * (RATE * 4 // 10)
ENOUGH = 64 * RATE
SHORTEST, LONGEST = 2 * RATE, 15 * RATE
TARGET = -26.0                     # dBov, active level
VOICES = {
    "en_US_f_Allison": "en-allison",
    "es_MX_f_Allison": "es-allison",
    "fr_CA_f_June": "fr-june",
    "it_IT_m_Carlo": "it-carlo",
    "ru_RU_f_IvrvoiceRU": "ru-ivrvoice",
}
NOT_RUNNING_SPEECH = {"silence", "digits", "letters", "phonetic"}
# tt-monkeys is a recording of monkeys; the others are signals.
NOT_SPEECH = ("tt-monkeys.wav", "beep", "ascending", "descending", "ring")


def load(path):
    with wave.open(str(path)) as w:
        form = (w.getframerate(), w.getnchannels(), w.getsampwidth())
        if form != (RATE, 1, 2):
            sys.exit(f"make-speech: {path} is {form}, not 8 kHz mono 16 bit")
        pcm = array.array("h", w.readframes(w.getnframes()))
    if sys.byteorder == "big":
        pcm.byteswap()
    return list(pcm)


def level(pcm):
    """RMS in dB below the overload point (32768)."""
    power = sum(s * s for s in pcm) / max(1, len(pcm))
    return 10 * math.log10(max(power, 1e-9) / 32768**2)


def frames(pcm):
    return [pcm[i:i + FRAME] for i in range(0, len(pcm) - FRAME + 1, FRAME)]


def trim(pcm):
    """Without the silence at both ends, so that the gaps are ours alone."""
    loud = [i for i, f in enumerate(frames(pcm)) if level(f) > -50]
    return pcm[loud[0] * FRAME:(loud[-1] + 1) * FRAME] if loud else []


def active_level(pcm):
    """RMS over the frames within 35 dB of the loudest: near enough to P.56."""
    levels = [level(f) for f in frames(pcm)]
    floor = max(levels) - 35
    active = [f for f, l in zip(frames(pcm), levels) if l > floor]
    return level([s for f in active for s in f])


sounds, out = map(pathlib.Path, sys.argv[1:])
for voice, name in VOICES.items():
    prompts = []
    for path in sorted((sounds / voice).rglob("*.wav")):
        if path.parent.name in NOT_RUNNING_SPEECH or path.name.startswith(NOT_SPEECH):
            continue
        pcm = trim(load(path))
        if SHORTEST <= len(pcm) <= LONGEST:
            prompts.append((-len(pcm), path.name, pcm))
    call = []
    for _, prompt, pcm in sorted(prompts):
        if len(call) >= ENOUGH:
            break
        print(f"  {name}: {prompt} {len(pcm) / RATE:.1f} s")
        call += pcm + GAP
    if len(call) < ENOUGH:
        sys.exit(f"make-speech: {voice} has only {len(call) / RATE:.0f} s of long prompts")
    gain = 10 ** ((TARGET - active_level(call)) / 20)
    call = [round(s * gain) for s in call]
    peak = max(map(abs, call))
    if peak > 32767:
        sys.exit(f"make-speech: {name} would clip at {TARGET} dBov")
    pcm = array.array("h", call)
    if sys.byteorder == "big":
        pcm.byteswap()
    with wave.open(str(out / f"{name}.wav"), "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(RATE)
        w.writeframes(pcm.tobytes())
    print(f"{name}.wav: {len(call) / RATE:.1f} s, active {active_level(call):.2f} dBov, "
          f"RMS {level(call):.2f} dBov, peak {peak} of 32767")
PYTHON
