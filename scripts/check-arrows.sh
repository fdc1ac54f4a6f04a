#!/usr/bin/env bash
# check-arrows.sh [--print]: checks the dependencies between crates, and between modules
# of overlay, against the arrows of ARCHITECTURE.md. Also checks that no sans-IO crate
# depends on the operating system. --print shows the existing arrows.
#
# Dev-dependencies are not checked: a test may drive a sans-IO crate with anything. Nor
# are the tests within a crate: files called tests.rs or in a folder tests/, and items
# behind #[cfg(test)].
set -euo pipefail
cd "$(dirname "$0")/.."

print=${1:-}

# The trunkline crates that each crate may name in its Cargo.toml.
arrows() {
    case "$1" in
        base) ;;
        overlay) echo base rate ;;
        net | rate | media | sip) echo base ;;
        gateway) echo base overlay sip ;;
        client) echo base overlay ;;
        trunkline) echo base net overlay media sip gateway client ;;
        sim) echo base net overlay rate media ;;
        lab) echo base net overlay rate sim media client ;;
        *) return 1 ;;
    esac
}

# The modules of overlay that each module may name, from the ground up.
module_arrows() {
    case "$1" in
        counters | arena | wire) ;;
        identity) echo wire ;;
        monitor) echo counters wire ;;
        link) echo counters arena wire identity monitor ;;
        route | handshake) echo wire identity link ;;
        session) echo wire identity ;;
        trunk) echo wire link session ;;
        node) echo counters arena wire identity monitor link route handshake session trunk ;;
        *) return 1 ;;
    esac
}
sans_io="base net overlay rate media sip gateway"
# Anything here means sockets, threads, clocks or the system's randomness.
io="async-std getrandom libc mio nix polling rustix smol socket2 tokio windows-sys"

# Crates whose own dependencies are ignored in the sans-IO crates, since no feature turns
# them off. ring has a generator that reads the system's entropy through getrandom, which
# depends on libc; the rest of ring only computes. clippy.toml bans the generator and all
# functions that take it.
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
        if [ "$print" = --print ] && [ "$used" != "$crate" ]; then echo "$crate -> $used"; fi
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

# A crate must not re-export another whole: that would hide an arrow from this check.
if grep -nE '^ *pub use trunkline_[a-z_]+( as [a-z_]+)?;' crates/*/src -r; then
    echo "error: a crate is re-exported whole: a crate that uses it needs its own arrow"
    bad=1
fi

# Prints "FROM TO FILE:LINE" for each path that leads from one module of overlay to
# another: crate::TO and super::…::TO, in a use, in a group of one, or within code.
paths() {
    find crates/overlay/src -name '*.rs' ! -name lib.rs ! -name tests.rs ! -path '*/tests/*' | sort | xargs awk '
        function arrow(to) {
            if (to != from) print from, to, FILENAME ":" FNR, published
        }
        # Reports the first name of `path`, which follows crate:: or as many super::
        # as lead to the root: one name, or the first of each member of a group.
        function follow(path, i, ch, depth, start) {
            if (path !~ /^\{/) { match(path, /^(\*|[A-Za-z0-9_]+)/); arrow(substr(path, 1, RLENGTH)); return }
            depth = 0; start = 0
            for (i = 1; i <= length(path); i++) {
                ch = substr(path, i, 1)
                if (start && ch ~ /[A-Za-z0-9_]/) { match(substr(path, i), /^[A-Za-z0-9_]+/); arrow(substr(path, i, RLENGTH)); start = 0 }
                else if (start && ch == "*") { arrow("*"); start = 0 }
                if (ch == "{") depth++
                if (ch == "}" && --depth == 0) return
                if (depth == 1 && (ch == "," || ch == "{")) start = 1
            }
        }
        function scan(text, at, ups, path) {
            while (match(text, /(crate|super)::/)) {
                at = RSTART; path = substr(text, RSTART)
                # Part of a longer word (or $crate).
                if (at > 1 && substr(text, at - 1, 1) ~ /[A-Za-z0-9_]/) { text = substr(text, at + RLENGTH); continue }
                if (path ~ /^crate/) ups = depth
                else for (ups = 0; path ~ /^super::super::/; ups++) path = substr(path, 8)
                if (path ~ /^super/) ups++
                sub(/^(crate|super)::/, "", path)
                if (ups >= depth) follow(path)
                text = path
            }
        }
        FNR == 1 {
            module = FILENAME
            sub(/^crates\/overlay\/src\//, "", module); sub(/(\/mod)?\.rs$/, "", module)
            depth = split(module, parts, "/"); from = parts[1]
            testing = 0; held = ""
        }
        { sub(/\/\/.*/, ""); match($0, /^ */); indent = RLENGTH }
        # An item ends where its indentation closes (rustfmt sees to that).
        testing { if (indent == deep && $0 ~ /[};]$/) testing = 0; next }
        /^ *#\[cfg\(test\)\]/ { testing = 1; deep = indent; next }
        { gsub(/pub\(in [a-z_:]*\)/, "pub") }
        held == "" { published = /^ *pub[^=]* use / ? "pub" : "" }
        { held = held $0 }
        # A group continues until it is closed.
        /^ *(pub(\([a-z]+\))? )?use / || using { using = held !~ /;/; if (using) next }
        { scan(held); held = "" }'
}

found=$(paths)
while read -r from to place published; do
    allowed=$(module_arrows "$from") || {
        echo "error: overlay::$from: no arrows for it: add it to scripts/check-arrows.sh and ARCHITECTURE.md"
        bad=1
        continue
    }
    case " $allowed " in
        *" $to "*) ;;
        *) echo "error: $place: overlay::$from must not use overlay::$to (allowed: ${allowed:-none})"; bad=1 ;;
    esac
    if [ "$published" = pub ]; then
        echo "error: $place: overlay::$from must not re-export items of overlay::$to"
        bad=1
    fi
done <<<"$found"
if [ "$print" = --print ]; then
    awk '{ n[$1 " -> " $2]++ } END { for (a in n) printf "overlay::%s (%d)\n", a, n[a] }' <<<"$found" | sort
fi
exit $bad
