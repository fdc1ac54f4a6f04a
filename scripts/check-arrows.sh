#!/usr/bin/env bash
# Which crate may use which: the arrows of ARCHITECTURE.md, and no operating
# system beneath the sans-IO crates. Dev-dependencies are free: a test may drive
# a sans-IO crate with anything.
set -euo pipefail
cd "$(dirname "$0")/.."

# The trunkline crates that each crate may name in its Cargo.toml.
arrows() {
    case "$1" in
        base) ;;
        overlay) echo base rate ;;
        net | rate | media) echo base ;;
        sip) echo base media ;;
        client) echo base overlay ;;
        trunkline) echo base net overlay rate media sip client ;;
        sim) echo base net overlay rate media ;;
        lab) echo base net sim media client ;;
        *) return 1 ;;
    esac
}
sans_io="base net overlay rate media sip"
# Anything here means sockets, threads, clocks or the system's randomness.
io="async-std getrandom libc mio nix polling rustix smol socket2 tokio windows-sys"

# What a crate brings whatever one asks of it, looked past in the sans-IO crates
# only. ring has a generator that reads the system's entropy through getrandom,
# and through it libc; the rest of ring computes. clippy.toml bans the generator
# and all that takes it.
looked_past="ring"

tree() { cargo tree --quiet --edges normal,build --prefix none --format '{p}' "$@" | cut -d ' ' -f 1 | sort -u; }

bad=0
for manifest in crates/*/Cargo.toml; do
    crate=$(basename "$(dirname "$manifest")")
    package=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
    allowed=$(arrows "$crate") || {
        echo "error: crates/$crate: no arrows for it: add it to scripts/check-arrows.sh and ARCHITECTURE.md"
        bad=1
        continue
    }
    for used in $(tree -p "$package" --depth 1 | sed -n 's/^trunkline-//p'); do
        case " $crate $allowed " in
            *" $used "*) ;;
            *) echo "error: $package must not depend on trunkline-$used (allowed: ${allowed:-none})"; bad=1 ;;
        esac
    done
    case " $sans_io " in *" $crate "*) ;; *) continue ;; esac
    prune=()
    for crate in $looked_past; do
        if grep -qx "$crate" <<<"$(tree -p "$package")"; then prune+=(--prune "$crate"); fi
    done
    all=$(tree -p "$package" "${prune[@]}")
    for banned in $io; do
        if grep -qx "$banned" <<<"$all"; then
            echo "error: $package is sans-IO but reaches $banned: see \`cargo tree -p $package -e normal -i $banned\`"
            bad=1
        fi
    done
done
exit $bad
