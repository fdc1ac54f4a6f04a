#!/usr/bin/env bash
. "$CASES/lib/case.sh"
python3 "$(dirname "$0")/scenario.py" >planetlab.toml || broken "scenario.py failed"
"$LAB" run planetlab.toml --out out >said 2>&1 || broken "the scenario does not run: $(tail -1 said)"
by python3 "$(dirname "$0")/case.py" out/scenario/planetlab/data.csv
