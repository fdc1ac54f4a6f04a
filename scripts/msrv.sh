#!/usr/bin/env bash
# Compiles the workspace with the rust-version of Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
cargo "+$msrv" --version >/dev/null 2>&1 || {
    echo "skipped: Rust $msrv: not installed; run make setup"
    exit 77
}
# A separate target directory: otherwise the two compilers would rebuild each other's work.
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/msrv" cargo "+$msrv" check --workspace "$@"
