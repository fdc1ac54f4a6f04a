#!/usr/bin/env bash
# Every direct dependency has its line in the table of ARCHITECTURE.md, with the
# reason why it is there; and the table names nothing that is not one.
set -euo pipefail
cd "$(dirname "$0")/.."

listed=$(sed -n '/^## Dependencies/,/^Considered and rejected/p' ARCHITECTURE.md |
    awk -F '|' '/^\|/ { print $3 }' | grep -oE '`[a-z0-9_-]+`' | tr -d '`' | sort -u)
bad=0
used=$(awk '
    /^\[/ { in_deps = /dependencies(\.|\])/ }
    in_deps && /^[a-z0-9_-]+ *[=.]/ {
        name = $1; sub(/[.=].*/, "", name)
        if (name !~ /^trunkline/) print name, FILENAME ":" FNR
    }' crates/*/Cargo.toml fuzz/Cargo.toml)
while read -r name at; do
    grep -qxF "$name" <<<"$listed" || {
        echo "error: $at: \`$name\` has no line in ARCHITECTURE.md's table of dependencies: add why it is there"
        bad=1
    }
done <<<"$used"
while read -r name; do
    cut -d ' ' -f 1 <<<"$used" | grep -qxF "$name" || {
        echo "error: ARCHITECTURE.md: \`$name\` is in the table of dependencies, but no Cargo.toml has it: delete its line"
        bad=1
    }
done <<<"$listed"
exit $bad
