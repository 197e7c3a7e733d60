"""What a run shows while it runs (`verbose=1`): a line that moves in terminals and notebooks, a few lines in
log files.

    terminal    one line that is written over, with a bar; at most once a second
    notebook    the same line in the cell's output
    log file    one line every 30 seconds, and the last one

Messages (a resumed run, a shard that was lost and replaced) have lines of their own. Everything goes to
stderr.
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


class Progress:
    """Takes rows of a run's history, and messages {"message": text}, one at a time; `close` ends the line.

    Parameters
    ----------
    stream : to write to; None is stderr as it is when the run begins.
    clock : seconds from anywhere, for tests.

    Examples
    --------
    >>> import io
    >>> shown = io.StringIO()
    >>> progress = Progress(shown)
    >>> progress({"message": "resumed from round 12 of runs/a"})
    >>> print(shown.getvalue(), end="")
    [raymkl] resumed from round 12 of runs/a
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self.stream = sys.stderr if stream is None else stream
        self.clock = clock
        self.notebook = _notebook_display() if stream is None else None
        self.live = self.notebook is not None or _is_terminal(self.stream)
        self.shown_at = -float("inf")
        self.shown: list[dict] = []  # rows of the round that was shown last
        self.rows: list[dict] = []  # rows of the newest round, one per head
        self.first_gap: float | None = None
        self.part = 0.0
        self.width = 0  # of the line that stands in the terminal

    def __call__(self, row: dict) -> None:
        if "message" in row:
            self._line(str(row["message"]))
            return
        if self.first_gap is None:
            self.first_gap = row["gap"]
            self._line(
                f"memory plan: {row['rows_per_shard']} rows per shard, {row['cache_capacity']} columns "
                "cached, "
                f"at most {row['expected_peak_bytes'] / 2**20:.0f} MiB per shard"
            )
            self.shown_at = self.clock() if not self.live else self.shown_at
        if self.rows and row["round"] != self.rows[0]["round"]:
            self._show()
            self.rows = []
        self.rows.append(row)

    def close(self) -> None:
        """Show the last round and end the line."""
        if self.rows and self.rows is not self.shown:
            self._show(last=True)
        if self.live and self.notebook is None and self.width:
            self.stream.write("\n")
            self.stream.flush()
            self.width = 0
        self.rows = []

    def _show(self, last: bool = False) -> None:
        """Show the newest round, if enough time has passed since the last one."""
        now = self.clock()
        if not last and now - self.shown_at < (LIVE_SECONDS if self.live else LOG_SECONDS):
            return
        self.shown_at, self.shown = now, self.rows
        text = self._describe()
        if self.notebook is not None:
            self.notebook(f"[raymkl] {text}")
        elif self.live:
            line = f"[raymkl] {text}"
            self.stream.write("\r" + line.ljust(self.width))
            self.stream.flush()
            self.width = len(line)
        else:
            self._line(text)

    def _describe(self) -> str:
        """One line about all heads of a round."""
        row, worst = self.rows[-1], max(row["gap"] for row in self.rows)
        heads = f"  {len(self.rows)} problems" if len(self.rows) > 1 else ""
        return (
            f"{self._bar(worst)}{row['seconds']:7.1f} s  round {row['round']:4d}  gap {worst:.2e}{heads}  "
            f"support vectors {max(row['support_vectors'] for row in self.rows)}  cached "
            f"{row['cached_columns']}/{row['cache_capacity']}"
        )

    def _bar(self, gap: float) -> str:
        """How far the gap has come from the first one to the tolerance, in powers of ten; it never goes
        back.
        """
        tol = self.rows[-1].get("tol")
        if not self.live or not tol:
            return ""
        first = max(self.first_gap, gap, tol)
        part = 1.0 if gap <= tol else log(first / gap) / log(first / tol)
        self.part = max(self.part, min(part, 1.0))
        filled = int(BAR_WIDTH * self.part)
        return f"|{'#' * filled}{'-' * (BAR_WIDTH - filled)}| "

    def _line(self, text: str) -> None:
        """A line of its own, above the one that moves."""
        if self.live and self.notebook is None and self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.width = 0
        self.stream.write(f"[raymkl] {text}\n")
        self.stream.flush()


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
