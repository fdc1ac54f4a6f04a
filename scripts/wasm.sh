#!/usr/bin/env bash
# Compiles the sans-IO crates for a target without sockets, files, clock or entropy.
# A dependency that needs one of these usually doesn't compile there.
set -euo pipefail
cd "$(dirname "$0")/.."

target=wasm32-unknown-unknown
test -d "$(rustc --print sysroot)/lib/rustlib/$target" || {
    echo "skipped: $target: not installed; run make setup"
    exit 77
}
packages=()
for crate in base net overlay rate media sip gateway; do
    if [ -d "crates/$crate" ]; then packages+=(-p "trunkline-$crate"); fi
done
# ring has a few files in C. `cargo check` links nothing and doesn't use their object
# code, so a stub compiler is enough.
stub=$(mktemp -d)
trap 'rm -rf "$stub"' EXIT
cat >"$stub/cc" <<'EOF'
#!/bin/sh
# Creates only the file that the build script expects.
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then : >"$2"; fi
    shift
done
EOF
chmod +x "$stub/cc"
export CC_wasm32_unknown_unknown="$stub/cc" AR_wasm32_unknown_unknown=true
cargo check --target "$target" "${packages[@]}" "$@"
