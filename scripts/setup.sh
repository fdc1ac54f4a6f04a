#!/usr/bin/env bash
# setup.sh [all]: installs what `make test` needs beyond a Rust toolchain, make and a C
# compiler; with `all` also what `make check-all` and `make bench` need. It leaves alone what
# is there. SETUP=no installs nothing and names what is missing.
#
# A tool that can't be installed is named on a "skipped:" line and, if CI is set, makes the
# script fail.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

missing=0
skipped() { # TOOL WHY
    echo "skipped: $1: $2"
    missing=1
}

# Whether TOOL is to be installed now.
wanted() { # TOOL [WHY]
    if [ "${SETUP:-}" = no ]; then
        skipped "$1" "not installed${2:+ ($2)}; run make setup"
        return 1
    fi
    echo "installing $1"
}

# rust_add WHAT PROBE COMMAND...: runs COMMAND unless `sh -c PROBE` succeeds.
rust_add() {
    local what="$1" probe="$2"; shift 2
    sh -c "$probe" >/dev/null 2>&1 && return
    wanted "$what" || return
    command -v "$1" >/dev/null || { skipped "$what" "$1 is not installed"; return; }
    "$@" </dev/null || skipped "$what" "\`$*\` failed"
}

# cargo_tool NAME VERSION FLAGS...: compiles a tool, unoptimised, since these run for seconds.
cargo_tool() {
    env -u CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=false \
        cargo install "$1@$2" --locked --quiet "${@:3}"
}

# prebuilt NAME VERSION SHA256 FLAGS...: takes a tool from PyPI, where Astral publishes builds
# of it for x86_64 (2 s each); elsewhere, compiles it (cargo-nextest: minutes).
prebuilt() {
    local name="$1" version="$2" sha256="$3" dir status=0
    dir=$(mktemp -d)
    echo "astral-dev-toolchain-$name==$version --hash=sha256:$sha256" >"$dir/list"
    pip3 download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes --dest "$dir" --requirement "$dir/list" >/dev/null 2>&1 &&
        python3 -m zipfile -e "$dir"/*.whl "$dir/wheel" &&
        install -D -t "${CARGO_HOME:-$HOME/.cargo}/bin" "$dir"/wheel/*.data/scripts/"$name" ||
        cargo_tool "$name" "$version" "${@:4}" || status=1
    rm -rf "$dir"
    return "$status"
}

# need PROGRAM PACKAGE WHY: apt_install installs PACKAGE unless PROGRAM is there.
packages=()
declare -A why
need() {
    command -v "$1" >/dev/null && return
    wanted "$2" "$3" || return
    packages+=("$2")
    why[$2]=$3
}

apt_install() {
    [ ${#packages[@]} -gt 0 ] || return
    local sudo=() log package
    if [ "$(id -u)" != 0 ]; then sudo=(sudo -n); fi
    log=$(mktemp)
    apt() { "${sudo[@]}" apt-get "$@" >"$log" 2>&1 </dev/null; }
    # Package lists may be older than the mirror: refresh them only if need be.
    apt install -y --no-install-recommends "${packages[@]}" ||
        { apt update; apt install -y --no-install-recommends "${packages[@]}"; } ||
        for package in "${packages[@]}"; do
            apt install -y --no-install-recommends "$package" ||
                skipped "$package" "apt-get could not install it (${why[$package]}): $(tail -n 1 "$log")"
        done
    rm -f "$log"
}

msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

rust_add rustfmt "cargo fmt --version" rustup component add rustfmt
rust_add clippy "cargo clippy --version" rustup component add clippy
rust_add "Rust $msrv" "cargo +$msrv --version" rustup toolchain install "$msrv" --profile minimal
rust_add Miri "cargo +nightly miri --version" \
    rustup toolchain install nightly --profile minimal --component miri,rust-src
rust_add "target wasm32" "test -d '$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown'" \
    rustup target add wasm32-unknown-unknown
# Of cargo's own subcommands any version will do.
rust_add cargo-nextest "cargo nextest --version" prebuilt cargo-nextest 0.9.148 \
    76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968
rust_add cargo-deny "cargo deny --version" prebuilt cargo-deny 0.20.2 \
    ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee --no-default-features
rust_add cargo-fuzz "cargo fuzz --version" prebuilt cargo-fuzz 0.13.2 \
    612108f626b6ee0e5d63b1a0e257c89c13abffbd8fff539ccbffb7205b33093f
need valgrind valgrind "the tests of the C interface, the benchmark that counts instructions"
need pkg-config pkg-config "the tests of what make install leaves"
need c++ g++ "the header is for C++ too"
need tshark tshark "the tests that read the simulator's captures"
need python3 python3 "make rules, the example in Python"
need chromium chromium "the tests of the demo's report"
need iperf3 iperf3 "the tests of trunkline proxy with programs of others"
need srt-file-transmit srt-tools "trunkline-lab run reliable-overlay/transfer --testbed, which compares with it"
need ffmpeg ffmpeg "the same; 160 MB"
need socat socat "the test that does what docs/guide.md says"
need curl curl "the same"
need jq jq "the test that does what docs/gateway.md says"
need baresip baresip-core "the tests with real telephones"
need kamailio kamailio "the same"
need sipp sip-tester "the same"
need nft nftables "the same"
need ip iproute2 "the same"
if [ "${1:-}" = all ]; then
    [ -n "${CI:-}" ] ||
        need rtpengine rtpengine-daemon "trunkline-lab load, which compares with it"
    # Must be of the version that Cargo.lock has of the library.
    gungraun=$(sed -n '/^name = "gungraun"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
    rust_add gungraun-runner "gungraun-runner --version | grep -qFx 'gungraun-runner $gungraun'" \
        cargo_tool gungraun-runner "$gungraun"
fi
apt_install

if [ $missing = 1 ] && [ -n "${CI:-}" ]; then
    echo "error: CI needs every tool; see the skipped lines above" >&2
    exit 1
fi
exit 0
