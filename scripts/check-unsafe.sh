#!/usr/bin/env bash
# ARCHITECTURE.md lists every file that may have unsafe code: no more, no less.
# Tests count, too; what the compiler may not look at (`allow`) is what is listed.
set -euo pipefail
cd "$(dirname "$0")/.."

there=$(grep -rlE 'allow\(unsafe_code\)' crates fuzz/fuzz_targets --include='*.rs' | sort)
listed=$(sed -n '/^## Unsafe code/,/^## /s/^| `\(crates\/[^`]*\)`.*/\1/p' ARCHITECTURE.md | sort)
diff <(echo "$listed") <(echo "$there") || {
    echo "error: files with unsafe code (>) are not those that ARCHITECTURE.md lists (<)" >&2
    exit 1
}
