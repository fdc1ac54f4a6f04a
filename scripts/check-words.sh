#!/usr/bin/env bash
# Names and phrases that are not used here: scripts/words.txt lists them with
# their replacements.
set -euo pipefail
cd "$(dirname "$0")/.."

code=(crates fuzz/src fuzz/fuzz_targets include examples ':!*.md')
# The changelog lists the old names.
prose=('*.md' ':!CHANGELOG.md' 'crates/*.rs' 'fuzz/*.rs' 'include/*.h' 'examples' 'scripts/*.sh' Makefile)
bad=0
while IFS=$'\t' read -r where word instead; do
    case $where in '' | '#'*) continue ;; esac
    case $where in
        code) hits=$(git grep -nwE "$word" -- "${code[@]}" || true) ;;
        # In source files only what follows a comment sign is prose.
        prose) hits=$(git grep -nwE "$word" -- "${prose[@]}" |
            grep -E '^[^:]*\.md:|^[^:]*:[0-9]+:[^"]*(//|#|/\*| \* )' || true) ;;
        *) echo "error: scripts/words.txt: '$where' is neither code nor prose"; exit 1 ;;
    esac
    [ -z "$hits" ] && continue
    bad=1
    while IFS=: read -r file line _; do
        echo "error: $file:$line: '$word': write $instead"
    done <<<"$hits"
done <scripts/words.txt
exit $bad
