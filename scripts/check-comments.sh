#!/usr/bin/env bash
# Every doc comment says something: none has three words or fewer, and none
# begins with a headless "who", "what" or "whose". Comments in test functions
# and in macros count too.
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files -z -- 'crates/*.rs' 'fuzz/*.rs' | xargs -0 awk '
    function report(why) { print "error: " file ":" line ": " why; bad = 1 }
    function finish() {
        if (!open) return
        open = 0
        count = split(text, words, /[ \t]+/)
        if (count > 0 && words[1] == "") count--
        if (doc && count <= 3)
            report("doc comment of " count " words: say what the name does not (unit, range, meaning, source), or delete it")
        if (text ~ /^ *(Who|Whom|Whose|What) /)
            report("comment begins with a headless clause: begin with the subject (\"The caller\", not \"Who calls\")")
    }
    FNR == 1 { finish() }
    {
        if (match($0, /^[ \t]*\/\/[\/!]?/)) {
            kind = substr($0, RSTART, RLENGTH); gsub(/[ \t]/, "", kind)
            rest = substr($0, RSTART + RLENGTH)
            if (open && kind == last) { text = text " " rest; next }
            finish()
            open = 1; last = kind; doc = (kind != "//"); text = rest; file = FILENAME; line = FNR
        } else finish()
    }
    END { finish(); exit bad }'
