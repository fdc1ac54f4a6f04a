#!/usr/bin/env bash
# A direct path of 35 ms, too long for a repair within 100 ms, and one over c that is 1 ms longer.
. "$CASES/lib/case.sh"

# link FROM TO DELAY
link() { printf '[[link]]\nbetween = ["%s", "%s"]\ndelay = "%s"\nloss = "5%%"\n' "$@"; }

# calls_over NAME: runs ten calls from a to b over the links of standard input; prints the
# percentage of packets missed.
calls_over() {
    {
        printf 'length = "60 s"\n[routing]\nmetric = "expected-latency"\n'
        printf '[[host]]\nname = "%s"\n' a b c
        cat
        printf '[[call]]\nfrom = "a"\nto = "b"\ncount = 10\n'
    } >"$1.toml"
    "$LAB" run "$1.toml" --out out >said 2>&1 || { cat said >&2; return; }
    python3 -c '
import csv, sys
rows = csv.DictReader(line for line in open(sys.argv[1]) if not line.startswith("#"))
print(max(float(row["missed_pct"]) for row in rows))' "out/scenario/$1/data.csv"
}

over_c=$({ link a c 18ms; link c b 18ms; } | calls_over over-c)
whole=$({ link a b 35ms; link a c 18ms; link c b 18ms; } | calls_over whole)
control "over c alone the calls miss $over_c %" below "$over_c" 2
right "with a direct path of 35 ms beside it they miss $whole %" below "$whole" 2
