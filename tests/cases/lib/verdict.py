"""Verdicts of a case: control(), right(), and finish() for lib/case.sh."""

import os
import sys
import threading
import traceback

# Exit statuses that Python never ends with on its own. lib/case.sh accepts no other.
RIGHT, WRONG, BROKEN = 10, 11, 2

_judged = 0
_wrong = 0


def control(text: str, holds: object) -> None:
    """`holds` is true whether the fault is there or not; otherwise the case is broken."""
    if not holds:
        print(f"broken: control: {text}", flush=True)
        os._exit(BROKEN)
    print(f"control: {text}", flush=True)


def right(text: str, holds: object) -> None:
    """`holds` is true once the fault is mended."""
    global _judged, _wrong
    _judged += 1
    _wrong += not holds
    print(f"{'right' if holds else 'WRONG'}: {text}", flush=True)


def finish() -> None:
    """Ends the process, threads included, with the verdict; if nothing was judged, as broken."""
    sys.stdout.flush()
    os._exit(BROKEN if not _judged else WRONG if _wrong else RIGHT)


def _broken(kind, error, trace) -> None:
    traceback.print_exception(kind, error, trace)
    sys.stderr.flush()
    os._exit(BROKEN)


sys.excepthook = _broken
threading.excepthook = lambda failed: _broken(
    failed.exc_type, failed.exc_value, failed.exc_traceback
)
