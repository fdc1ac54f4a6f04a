#!/usr/bin/env bash
# previous-binary.sh: builds `trunkline` as it was at the commit in
# scripts/previous-commit, from this clone's history, and leaves it as
# CARGO_TARGET_DIR/previous/COMMIT/trunkline for tests/versions.rs. Once built,
# it stays. Exit status 77 if the history is not here.
set -euo pipefail
cd "$(dirname "$0")/.."

commit=$(sed -n 's/^\([0-9a-f]\{40\}\) .*/\1/p' scripts/previous-commit)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out="$target/previous/$commit"
[ -x "$out/trunkline" ] && exit 0

if ! git rev-parse --quiet --verify "$commit^{commit}" >/dev/null 2>&1; then
    echo "skipped: no binary of the previous protocol version: commit $commit is not here;" \
        "get it by \`git fetch --unshallow\`, or clone the repository instead of unpacking a tarball"
    exit 77
fi

# Not a work tree of git, which would have to be taken back if this is killed.
rm -rf "$out"
mkdir -p "$out/source"
git archive "$commit" | tar -x -C "$out/source"

# What both builds need of other people's crates has been compiled already,
# where the tests were: cargo takes it as it is if versions, features and
# profile are the same, and compiles the rest.
ours='*trunkline*'
if [ -d "$target/debug/.fingerprint" ]; then
    built="$out/target/debug"
    mkdir -p "$built/deps"
    for part in .fingerprint build; do
        mkdir "$built/$part"
        find "$target/debug/$part" -mindepth 1 -maxdepth 1 -not -name "$ours" \
            -exec cp -a -t "$built/$part" {} +
    done
    find "$target/debug/deps" -maxdepth 1 -name '*.d' -not -name "$ours" \
        -exec cp -a -t "$built/deps" {} +
    # The compiler replaces these, and does not write into them: links do.
    find "$target/debug/deps" -maxdepth 1 \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \) \
        -not -name "$ours" -exec cp -al -t "$built/deps" {} +
fi

(cd "$out/source" && cargo build --quiet --locked -p trunkline --target-dir "$out/target")
# Last, so that what is there is whole.
mv "$out/target/debug/trunkline" "$out/trunkline"
rm -rf "$out/source" "$out/target"
