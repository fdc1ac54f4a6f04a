"""Every pair of sites has a path over which most of its losses can be repaired."""

import csv
import sys
from statistics import mean

from verdict import control, finish, right

with open(sys.argv[1], encoding="utf-8") as lines:
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
missed = {row["calls"]: float(row["missed_pct"]) for row in rows}
plain = [share for name, share in missed.items() if name.startswith("plain")]
over = {name: share for name, share in missed.items() if name.startswith("real")}
control(f"outside of the overlay the calls miss {mean(plain):.2f} %", 4 < mean(plain) < 6)
worst = max(over, key=lambda name: over[name])
right(
    f"over it they miss {mean(over.values()):.2f} % on average, and at most {over[worst]:.2f} % ({worst})",
    over[worst] < 2,
)
finish()
