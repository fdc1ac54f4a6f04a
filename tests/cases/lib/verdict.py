"""Verdicts of a case: control(), right(), and finish() for the exit status of lib/case.sh."""

import os
import sys
import traceback

_judged = 0
_wrong = 0


def control(text: str, holds: object) -> None:
    """`holds` is true whether the fault is there or not; otherwise the case is broken."""
    if not holds:
        print(f"broken: control: {text}", flush=True)
        os._exit(2)
    print(f"control: {text}", flush=True)


def right(text: str, holds: object) -> None:
    """`holds` is true once the fault is mended."""
    global _judged, _wrong
    _judged += 1
    _wrong += not holds
    print(f"{'right' if holds else 'WRONG'}: {text}", flush=True)


def finish() -> None:
    """Ends the process, threads included: 0 if all is right, 1 if not, 2 if nothing was judged."""
    sys.stdout.flush()
    os._exit(2 if not _judged else 1 if _wrong else 0)


def _broken(kind, error, trace) -> None:
    traceback.print_exception(kind, error, trace)
    sys.stderr.flush()
    os._exit(2)


sys.excepthook = _broken
