#!/usr/bin/env bash
# Checks that ARCHITECTURE.md lists exactly the files that allow unsafe code
# (`allow(unsafe_code)`), including tests.
set -euo pipefail
cd "$(dirname "$0")/.."

there=$(grep -rlE 'allow\(unsafe_code\)' crates fuzz/fuzz_targets --include='*.rs' | sort)
listed=$(sed -n '/^## Unsafe code/,/^## /s/^| `\(crates\/[^`]*\)`.*/\1/p' ARCHITECTURE.md | sort)
diff <(echo "$listed") <(echo "$there") || {
    echo "error: files with unsafe code (>) differ from the list in ARCHITECTURE.md (<)" >&2
    exit 1
}
