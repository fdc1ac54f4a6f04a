#!/usr/bin/env bash
# Commit subjects since this script came: an imperative phrase of at most 72 characters, a capital
# letter first, no punctuation last. Merges are exempt; a shallow clone checks what it has.
set -euo pipefail
export LC_ALL=C.UTF-8 # lengths in characters
cd "$(dirname "$0")/.."

git rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: commit subjects: no git repository here"; exit 77; }
first=$(git log --diff-filter=A --format=%H -- scripts/check-commits.sh | tail -n 1)
range=$first..HEAD
# Where a shallow clone is cut off, a commit seems to add all files.
shallow=$(git rev-parse --git-path shallow)
if [ -z "$first" ] || { [ -f "$shallow" ] && grep -qxF "$first" "$shallow"; }; then range=HEAD; fi

# Whether a word is no imperative: it ends in -ed, -s or -ing, but not by its root.
bent() {
    [[ ${1,,} =~ ([^e]ed|[^s]s|ing)$ ]] &&
        ! [[ ${1,,} =~ ^(embed|shed|sled|wed|focus|alias|bias|focus|bring|fling|ping|ring|sling|spring|string|swing|wing)$ ]]
}

bad=0
subjects=$(git log --no-merges --format='%h %s' "$range")
while read -r commit subject; do
    [ -n "$commit" ] || continue
    first=${subject%%[ ,:]*}
    why=
    if [ ${#subject} -gt 72 ]; then why="${#subject} characters: at most 72, the rest belongs in the body"
    elif ! [[ $subject =~ ^[A-Z\`] ]]; then why="begin with an imperative and a capital letter"
    elif bent "$first"; then why="begin with an imperative: \"$first\" is none"
    elif [[ $subject =~ ([.,:\;!?…]|-)$ ]]; then why="no punctuation at the end"
    fi
    [ -z "$why" ] && continue
    echo "error: commit $commit: \"$subject\": $why (\`git commit --amend\` or \`git rebase -i\`)"
    bad=1
done <<<"$subjects"
exit $bad
