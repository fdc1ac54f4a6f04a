#!/usr/bin/env bash
# Runs under Miri, which knows what Rust lets pointers do, what of the unsafe code
# needs no more of the system than Miri has, and no minutes: of the client the C
# interface and the ring between threads, of the packet thread's arrays the test
# that plays the kernel's part. The rest of the C
# interface runs under valgrind and AddressSanitizer (tests/it/c_api.rs).
set -euo pipefail
cd "$(dirname "$0")/.."

cargo +nightly miri --version >/dev/null 2>&1 || {
    echo "skipped: Miri: not installed; run make setup"
    exit 77
}
# Their own place, since another compiler made it; and the machine's clock.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/miri"
export MIRIFLAGS="-Zmiri-disable-isolation" PROPTEST_CASES=4
cargo +nightly miri test --quiet "$@" -p trunkline-client --lib -- \
    ffi:: carrier:: a_full_ring a_million a_write_may_come_late either_end no_wake_up

# The file alone, as a library: the daemon's other parts need a minute to compile.
package="$CARGO_TARGET_DIR/mmsg"
mkdir -p "$package"
libc=$(sed -n '/^name = "libc"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
cat >"$package/Cargo.toml" <<EOF
[package]
name = "mmsg"
edition = "2024"
[lib]
path = "$PWD/crates/trunkline/src/datapath/mmsg.rs"
[dependencies]
libc = "=$libc"
[workspace]
EOF
cargo +nightly miri test --quiet --manifest-path "$package/Cargo.toml" --lib laid_out
