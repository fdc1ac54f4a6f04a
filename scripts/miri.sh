#!/usr/bin/env bash
# Runs tests of unsafe code under Miri, which checks Rust's rules for pointers. These are
# the tests that need only system calls that Miri has, and no minutes: the client's C
# interface, its ring between threads, and the test of the packet thread's arrays that
# plays the kernel's part. The rest of the C interface runs under valgrind and
# AddressSanitizer (tests/it/c_api.rs).
set -euo pipefail
cd "$(dirname "$0")/.."

cargo +nightly miri --version >/dev/null 2>&1 || {
    echo "skipped: Miri: not installed; run make setup"
    exit 77
}
# A separate target directory, since the compiler is another. Without isolation, tests
# can read the machine's clock.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/miri"
export MIRIFLAGS="-Zmiri-disable-isolation" PROPTEST_CASES=4
cargo +nightly miri test --quiet "$@" -p trunkline-client --lib -- \
    ffi:: carrier:: a_full_ring a_million a_write_may_come_late either_end no_wake_up

# Tests this file alone, as a library: the rest of the daemon takes a minute to compile.
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
