"""Cases and their runner: one line for each, with its time; the logs of those that failed."""

import contextlib
import os
import re
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Callable

from .process import Failure, RunDir, Unavailable, end_all, patient

LIMIT_SECONDS = 60


@dataclass
class Case:
    """A test: `function(rundir)` returns a short text with what it saw, or raises."""

    name: str
    function: Callable
    slow: bool = False
    limit: int = LIMIT_SECONDS


class Suite:
    """All cases, in the order in which they run."""

    def __init__(self):
        self.cases = []

    def add(self, name, function, slow=False, limit=LIMIT_SECONDS):
        self.cases.append(Case(name, function, slow, limit))

    def chosen(self, filters, with_slow):
        """Cases whose name contains every word of a filter; named ones may be slow."""
        if not filters:
            return [c for c in self.cases if with_slow or not c.slow]
        return [c for c in self.cases if any(_matches(c.name, text) for text in filters)]


def _matches(name, text):
    return all(re.search(re.escape(word), name, re.IGNORECASE) for word in text.split())


class _OutOfTime(BaseException):
    """The case's time is over. Not an Exception: nothing on the way may take it for its own."""


@contextlib.contextmanager
def _time_limit(seconds):
    def over(_number, _frame):
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, patient(seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _run_one(case, keep):
    """(verdict, what to print after the name, what to print below it)."""
    rundir = RunDir("interop")
    verdict, text, below = "FAIL", "", ""
    try:
        with _time_limit(case.limit):
            text = case.function(rundir) or ""
        verdict = "ok"
    except Unavailable as missing:
        verdict, text = ("FAIL" if in_ci() else "SKIP"), str(missing)
    except Failure as failure:
        text, below = str(failure), rundir.tails()
    except _OutOfTime:
        text, below = f"not finished after {case.limit} s", rundir.tails()
        below = traceback.format_exc(limit=-6) + below
    except Exception as error:  # A defect of the case itself: show where.
        text, below = repr(error), traceback.format_exc() + rundir.tails()
    finally:
        end_all()
    if verdict == "ok" and not keep:
        rundir.remove()
    else:
        below += f"\n(files are in {rundir.path})"
    return verdict, text, below


def in_ci():
    """On a CI machine a test that cannot run is a failure, not something to pass over."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def run_cases(cases, keep=False):
    """Runs them; returns the number of those that failed."""
    counts = {"ok": 0, "FAIL": 0, "SKIP": 0}
    skipped = []
    begin = time.monotonic()
    for case in cases:
        started = time.monotonic()
        verdict, text, below = _run_one(case, keep)
        counts[verdict] += 1
        took = time.monotonic() - started
        first, *more = text.splitlines() or [""]
        print(f"{verdict:4} {took:5.1f} s  {case.name}" + (f": {first}" if first else ""))
        for line in [*more, *below.splitlines()] if verdict != "ok" or keep else more:
            print("       " + line)
        sys.stdout.flush()
        if verdict == "SKIP":
            skipped.append(case.name)
    minutes, seconds = divmod(int(time.monotonic() - begin), 60)
    print(f"{len(cases)} cases in {minutes} min {seconds} s")
    if skipped:
        print(f"*** {len(skipped)} CASES DID NOT RUN because something is missing here: ***")
        print("\n".join(f"***   {name}" for name in skipped))
    print(f"{counts['ok']} passed, {counts['FAIL']} failed", flush=True)
    return counts["FAIL"]
