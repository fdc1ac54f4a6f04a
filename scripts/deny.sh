#!/usr/bin/env bash
# Checks licences, bans and sources, from Cargo.lock alone. Security advisories are left
# out: they need a fresh copy of a database from the network. The same commit could pass
# today and fail tomorrow, or fail without network access. Before a release, run
# `cargo deny check advisories` by hand.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo deny --version >/dev/null 2>&1 || {
    echo "skipped: cargo-deny: not installed; run make setup"
    exit 77
}
cargo deny --log-level warn check --hide-inclusion-graph bans licenses sources
