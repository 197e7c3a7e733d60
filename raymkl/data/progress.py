"""What is shown while something long goes on: all lines of `verbose=1`, and those of writing a kernel store.

    verbose     0 shows nothing; 1 (or more) shows how a run gets on
    terminal    one line that is written over, with a bar; at most once a second
    notebook    the same line in the cell's output
    log file    whole lines only: one every 30 seconds, and the last one

Messages (a resumed run, a shard that was lost and replaced) have lines of their own. Everything begins with
`[raymkl]` and goes to stderr. `Line` decides all that; `Progress` says a run's rows in words.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from math import log
from typing import Any, TextIO

LOG_SECONDS = 30.0
LIVE_SECONDS = 1.0
BAR_WIDTH = 20


class Line:
    """A line that moves, and lines of their own above it.

    Parameters
    ----------
    stream : to write to; None is stderr as it is now (a program without one shows nothing).
    clock : seconds from anywhere, for tests.

    Examples
    --------
    >>> import io
    >>> shown = io.StringIO()
    >>> Line(shown).say("resumed from round 12 of runs/a")
    >>> print(shown.getvalue(), end="")
    [raymkl] resumed from round 12 of runs/a
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self.stream = sys.stderr if stream is None else stream
        self.clock = clock
        self.notebook = _notebook_display() if stream is None else None
        self.live = self.notebook is not None or _is_terminal(self.stream)
        self.shown_at = -float("inf")
        self.width = 0  # of the line that stands in the terminal

    def begin(self) -> None:
        """Let the first line of a log wait as long as any other; a line that moves is there at once."""
        if not self.live:
            self.shown_at = self.clock()

    def due(self) -> bool:
        """Whether enough time has passed since the line moved last."""
        return self.clock() - self.shown_at >= (LIVE_SECONDS if self.live else LOG_SECONDS)

    def show(self, text: str) -> None:
        """Move the line; in a log, write another one."""
        self.shown_at = self.clock()
        line = f"[raymkl] {text}"
        if self.notebook is not None:
            self.notebook(line)
        elif self.live:
            self._write("\r" + line.ljust(self.width))
            self.width = len(line)
        else:
            self._write(line + "\n")

    def say(self, text: str) -> None:
        """A line of its own, above the one that moves."""
        wiped = "\r" + " " * self.width + "\r" if self.width else ""
        self.width = 0
        self._write(f"{wiped}[raymkl] {text}\n")

    def end(self) -> None:
        """End the line that moves, so that what comes next has its own."""
        if self.width:
            self._write("\n")
            self.width = 0

    def _write(self, text: str) -> None:
        if self.stream is not None:
            self.stream.write(text)
            self.stream.flush()


class Progress:
    """Takes rows of a run's history, and messages {"message": text}, one at a time; `close` ends the line.

    Rows are those of rounds (one per head), of epochs, or of the phases of an iteration.

    Parameters
    ----------
    stream, clock : see `Line`.

    Examples
    --------
    >>> import io
    >>> shown = io.StringIO()
    >>> progress = Progress(shown)
    >>> progress({"epoch": 3, "seconds": 1.5, "gap": 0.02})
    >>> progress.close()
    >>> print(shown.getvalue(), end="")
    [raymkl]     1.5 s  epoch    3  gap 2.00e-02
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self.line = Line(stream, clock)
        self.rows: list[dict] = []  # rows of the newest step: one, or a round's, one per head
        self.begun = False
        self.first_gap = 0.0
        self.part = 0.0

    def __call__(self, row: dict) -> None:
        if "message" in row:
            self.line.say(str(row["message"]))
            return
        if not self.begun:
            self._begin(row)
        if self.rows and ("round" not in row or row["round"] != self.rows[0]["round"]):
            if self.line.due():
                self.line.show(self._words())
            self.rows = []
        self.rows.append(row)

    def close(self) -> None:
        """Show the last step and end the line."""
        if self.rows:
            self.line.show(self._words())
        self.line.end()
        self.rows = []

    def _begin(self, row: dict) -> None:
        self.begun, self.first_gap = True, row.get("gap", 0.0)
        if "rows_per_shard" in row:
            self.line.say(
                f"memory plan: {row['rows_per_shard']} rows per shard, {row['cache_capacity']} columns "
                f"cached, at most {row['expected_peak_bytes'] / 2**20:.0f} MiB per shard"
            )
        self.line.begin()

    def _words(self) -> str:
        """One line about the newest step."""
        row = self.rows[-1]
        seconds = f"{row['seconds']:7.1f} s"
        if "iteration" in row:
            return (
                f"{seconds}  iteration {row['iteration']:3d}  {row['phase']:8s}  "
                f"bound {row['bound']:.6g}  {row['clusters']} clusters"
            )
        if "epoch" in row:
            return f"{seconds}  epoch {row['epoch']:4d}  gap {row['gap']:.2e}"
        worst = max(row["gap"] for row in self.rows)
        heads = f"  {len(self.rows)} problems" if len(self.rows) > 1 else ""
        return (
            f"{self._bar(worst)}{seconds}  round {row['round']:4d}  gap {worst:.2e}{heads}  "
            f"support vectors {max(row['support_vectors'] for row in self.rows)}  cached "
            f"{row['cached_columns']}/{row['cache_capacity']}"
        )

    def _bar(self, gap: float) -> str:
        """How far the gap has come from the first one to the tolerance, in powers of ten; it never goes
        back.
        """
        tol = self.rows[-1].get("tol")
        if not self.line.live or not tol:
            return ""
        first = max(self.first_gap, gap, tol)
        part = 1.0 if gap <= tol else log(first / gap) / log(first / tol)
        self.part = max(self.part, min(part, 1.0))
        filled = int(BAR_WIDTH * self.part)
        return f"|{'#' * filled}{'-' * (BAR_WIDTH - filled)}| "


def progress_of(verbose: int) -> Progress | None:
    """What a fit with this `verbose` tells its rows to; None for 0."""
    return Progress() if verbose else None


def rows_written(name: str) -> Callable[[int, int], None]:
    """A function of (rows done, all rows) that moves a line in a terminal and says nothing anywhere else."""
    line = Line()
    if not line.live:
        return lambda done, total: None

    def show(done: int, total: int) -> None:
        if done == total or line.due():
            line.show(f"{name}: {done} of {total} rows ({done / total:.0%})")
        if done == total:
            line.end()

    return show


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # not a file, or one that is closed
        return False


def _notebook_display() -> Callable[[str], None] | None:
    """Something that shows a text in the cell's output, in place of what it showed before; None outside of
    notebooks.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    if shell is None or not hasattr(shell, "kernel"):  # IPython in a terminal has none
        return None
    from IPython.display import display  # there in notebooks alone

    handle = None

    def show(text: str) -> None:
        nonlocal handle
        if handle is None:
            handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            handle.update({"text/plain": text}, raw=True)

    return show
