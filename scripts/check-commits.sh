#!/usr/bin/env bash
# Commit subjects since this script came: at most 72 characters, a capital letter
# first, no full stop last. Merges are exempt; a shallow clone checks what it has.
set -euo pipefail
cd "$(dirname "$0")/.."

git rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: commit subjects: no git repository here"; exit 77; }
first=$(git log --diff-filter=A --format=%H -- scripts/check-commits.sh | tail -n 1)
[ -n "$first" ] || exit 0
bad=0
while read -r commit subject; do
    why=
    if [ ${#subject} -gt 72 ]; then why="${#subject} characters: at most 72, the rest belongs in the body"
    elif ! [[ $subject =~ ^[A-Z\`] ]]; then why="begin with an imperative and a capital letter"
    elif [[ $subject == *. ]]; then why="no full stop at the end"
    fi
    [ -z "$why" ] && continue
    echo "error: commit $commit: \"$subject\": $why (\`git commit --amend\` or \`git rebase -i\`)"
    bad=1
done < <(git log --no-merges --format='%h %s' "$first"..HEAD)
exit $bad
