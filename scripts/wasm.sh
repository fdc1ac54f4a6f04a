#!/usr/bin/env bash
# Compiles the sans-IO crates for a target that has no sockets, files, clock or
# entropy: a dependency that wants one of them usually doesn't compile there.
set -euo pipefail
cd "$(dirname "$0")/.."

target=wasm32-unknown-unknown
test -d "$(rustc --print sysroot)/lib/rustlib/$target" || {
    echo "skipped: $target: not installed; run scripts/setup.sh"
    exit 77
}
packages=()
for crate in base overlay rate media sip; do
    if [ -d "crates/$crate" ]; then packages+=(-p "trunkline-$crate"); fi
done
cargo check --target "$target" "${packages[@]}" "$@"
