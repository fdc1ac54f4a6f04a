#!/usr/bin/env bash
# Installs what `make test` and `make bench` need beyond a Rust toolchain, make
# and a C compiler. Whatever is already there is left alone. What can't be
# installed is named on a "skipped:" line and, if CI is set, makes the script
# fail.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

missing=0
skipped() { # WHAT WHY
    echo "skipped: $1: $2"
    missing=1
}

# apt_install PROGRAM PACKAGE WHY
apt_install() {
    command -v "$1" >/dev/null && return
    local sudo=() log
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || { skipped "$1" "needs root to install ($3)"; return; }
        sudo=(sudo -n)
    fi
    command -v apt-get >/dev/null || { skipped "$1" "no apt-get here; install it by hand ($3)"; return; }
    echo "installing $2"
    log=$(mktemp)
    # Package lists may be older than the mirror: refresh them only if need be.
    "${sudo[@]}" apt-get install -y --no-install-recommends "$2" >"$log" 2>&1 </dev/null ||
        { "${sudo[@]}" apt-get update >"$log" 2>&1 </dev/null &&
            "${sudo[@]}" apt-get install -y --no-install-recommends "$2" >>"$log" 2>&1 </dev/null; } ||
        { tail -n 5 "$log"; skipped "$1" "apt-get could not install $2 ($3)"; }
    rm -f "$log"
}

# rust_add WHAT PROBE COMMAND...: runs COMMAND unless `sh -c PROBE` succeeds.
rust_add() {
    local what="$1" probe="$2"; shift 2
    sh -c "$probe" >/dev/null 2>&1 && return
    echo "installing $what"
    command -v "$1" >/dev/null || { skipped "$what" "$1 is not installed"; return; }
    "$@" </dev/null || skipped "$what" "\`$*\` failed"
}

# cargo_tool NAME VERSION FLAGS...
# Unoptimised: these tools run for seconds, and compiling them optimised costs
# minutes (cargo-deny and cargo-fuzz: 151 s against 52 s on two cores).
cargo_tool() {
    local name="$1" version="$2"; shift 2
    # Of cargo's own subcommands any version will do; a runner must match.
    local probe="cargo ${name#cargo-} --version"
    case $name in cargo-*) ;; *) probe="$name --version | grep -qFx '$name $version'" ;; esac
    rust_add "$name" "$probe" env -u CARGO_TARGET_DIR \
        CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=false \
        cargo install "$name@$version" --locked --quiet "$@"
}

msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

rust_add rustfmt "cargo fmt --version" rustup component add rustfmt
rust_add clippy "cargo clippy --version" rustup component add clippy
rust_add "Rust $msrv" "cargo +$msrv --version" rustup toolchain install "$msrv" --profile minimal
rust_add Miri "cargo +nightly miri --version" \
    rustup toolchain install nightly --profile minimal --component miri,rust-src
rust_add "target wasm32" "test -d '$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown'" \
    rustup target add wasm32-unknown-unknown
cargo_tool cargo-deny 0.20.2 --no-default-features
cargo_tool cargo-fuzz 0.13.2
apt_install valgrind valgrind "the tests of the C interface, the benchmark that counts instructions"
apt_install pkg-config pkg-config "the tests of what make install leaves"
apt_install c++ g++ "the header is for C++ too"
apt_install tshark tshark "the tests that read the simulator's captures"
apt_install python3 python3 "the example in Python"
apt_install chromium chromium "the tests of the demo's report"
apt_install iperf3 iperf3 "the tests of trunkline proxy with programs of others"
apt_install srt-file-transmit srt-tools "trunkline-lab run reliable-overlay/transfer --testbed, which compares with it"
apt_install ffmpeg ffmpeg "the same; 160 MB"
apt_install socat socat "the test that does what docs/guide.md says"
apt_install curl curl "the same"
apt_install jq jq "the test that does what docs/gateway.md says"
apt_install baresip baresip-core "the tests with real telephones"
apt_install kamailio kamailio "the same"
apt_install sipp sip-tester "the same"
apt_install nft nftables "the same"
apt_install ip iproute2 "the same"
if [ -z "${CI:-}" ]; then
    apt_install rtpengine rtpengine-daemon "trunkline-lab load, which compares with it"
    # For `make bench`, which CI does not run; must be of the version that
    # Cargo.lock has of the library.
    gungraun=$(sed -n '/^name = "gungraun"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
    cargo_tool gungraun-runner "$gungraun"
fi

if [ $missing = 1 ] && [ -n "${CI:-}" ]; then
    echo "error: CI needs every tool; see the skipped lines above" >&2
    exit 1
fi
exit 0
