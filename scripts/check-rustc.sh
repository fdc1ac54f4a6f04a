#!/usr/bin/env bash
# Whether the Rust compiler is at least as new as Cargo.toml's rust-version.
set -euo pipefail
cd "$(dirname "$0")/.."

need=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
cure="install Rust $need or newer: https://rustup.rs, or \`rustup update stable\`"
if ! version=$(rustc --version 2>/dev/null); then
    echo "error: there is no Rust compiler (rustc): $cure" >&2
    exit 1
fi
have=$(cut -d ' ' -f 2 <<<"$version")
if [ "$(printf '%s\n' "$need" "${have%%-*}" | sort -V | head -n 1)" != "$need" ]; then
    echo "error: rustc is $have, and trunkline needs $need: $cure" >&2
    exit 1
fi
