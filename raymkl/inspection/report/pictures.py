"""The pictures of the report: drawn by the displays of `raymkl.plot` and by what these share, at the sizes of
the page.

Sizes are such that a picture can be read on a narrow screen, to which it shrinks. Values and full names are
tooltips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...plot import AlignmentDisplay, ConvergenceDisplay, KernelWeightsDisplay
from ...plot.base import Display
from ...plot.drawing import ANNOTATED, LONGEST_NAME, bars, heat_map, legend, line, log_scale
from .markup import number
from .svg import PAGE, hint, picture

# Pixels of plotting areas: width of bars, height of a row of bars or cells, width and height of curves.
BARS, ROW, CURVES = 210, 20, (340, 200)
# Pixels of heat maps: width with names; the narrowest cell, without and with a number, and the widest one;
# about that of a letter.
MAP, NARROW, NUMBERED, WIDE, LETTER = 540, 12, 29, 42, 6.2
# Points of a line, and of a cloud, at most.
MOST_POINTS, MOST_DOTS = 300, 500
Series = tuple[str, Any, Any]


def _drawn(display: Display, **options: Any) -> Callable[[Any], None]:
    """A function that draws a display in the colours of the page."""
    display.style = PAGE

    def draw(ax: Any) -> None:
        display.plot(ax=ax, **options)  # type: ignore[call-arg]

    return draw


# -- bars ------------------------------------------------------------------------------------------


def _rows_of_bars(draw: Callable[[Any], None], count: int, hints: Sequence[str], label: str) -> str:
    def drawn(ax: Any) -> None:
        draw(ax)
        ax.set(xticks=[], xlabel="")
        ax.spines["bottom"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        for bar, words in zip(ax.patches, hints, strict=True):
            hint(bar, words)

    return picture(drawn, label, BARS, ROW * max(count, 1))


def largest_weights(weights: np.ndarray, names: Sequence[str], top: int, label: str) -> str:
    """The `top` largest weights (M,) as bars, largest first."""
    order = np.argsort(-weights, kind="stable")[:top]
    hints = [f"{names[m]}: {weights[m]:.6g}" for m in order]
    return _rows_of_bars(_drawn(KernelWeightsDisplay(weights, names), top=top), len(order), hints, label)


def bars_of(names: Sequence[str], parts: Sequence[tuple[str, np.ndarray]], label: str) -> str:
    """Bars in the given order, made of parts (name, (k,) values); several parts have a legend."""

    def draw(ax: Any) -> None:
        bars(ax, PAGE, names, parts)
        if len(parts) > 1:
            legend(ax, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.2)

    hints = [
        f"{name}{f', {part}' if part else ''}: {value:.6g}"
        for part, values in parts
        for name, value in zip(names, values, strict=True)
    ]
    return _rows_of_bars(draw, len(names), hints, label)


# -- heat maps -------------------------------------------------------------------------------------


def _cells(
    draw: Callable[[Any], None],
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    longest: int = LONGEST_NAME,
) -> str:
    """Cells of equal size, as wide as the page has room for."""

    def drawn(ax: Any) -> None:
        draw(ax)
        hint(
            ax.collections[0],
            *(
                f"{row} / {column}: {values[i, k]:.6g}"
                for i, row in enumerate(rows)
                for k, column in enumerate(columns)
            ),
        )

    room = MAP - LETTER * min(max(map(len, rows), default=0), longest)
    least = NUMBERED if len(columns) <= ANNOTATED else NARROW
    cell = min(max(room / max(len(columns), 1), least), WIDE)
    height = ROW if cell > ROW else max(cell, NARROW)
    return picture(drawn, label, cell * len(columns), height * len(rows))


def weight_map(weights: np.ndarray, names: Sequence[str], rows: Sequence[str], top: int, label: str) -> str:
    """Weights (rows, M) of the `top` kernels with the largest ones, in the order of the list."""
    shown = np.sort(np.argsort(-weights.max(axis=0), kind="stable")[:top])
    draw = _drawn(KernelWeightsDisplay(weights, names, rows), top=top, sort=False)
    return _cells(draw, weights[:, shown], rows, [names[m] for m in shown], label)


def alignment_map(matrix: np.ndarray, names: Sequence[str], label: str) -> str:
    """Alignment (M, M) of every pair of kernels."""
    return _cells(_drawn(AlignmentDisplay(matrix, names)), matrix, names, names, label)


def map_of(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    largest: float | None = None,
    longest: int = LONGEST_NAME,
) -> str:
    """Any values (rows, columns), also below zero; `largest` has the strongest colour."""
    most = float(np.max(np.abs(values), initial=0.0)) if largest is None else largest
    return _cells(
        lambda ax: heat_map(ax, PAGE, values, rows, columns, -most, most, label, longest),
        values,
        rows,
        columns,
        label,
        longest,
    )


# -- lines and clouds ------------------------------------------------------------------------------


def thin(values: Sequence[Any], most: int = MOST_POINTS) -> list[Any]:
    """At most `most` evenly spaced values, the last one among them."""
    kept = np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(int))
    return [values[k] for k in kept]


def _legend_below(ax: Any) -> None:
    legend(ax, loc="upper left", bbox_to_anchor=(-0.08, -0.2), ncols=2, handlelength=2.6)


def run_of(
    rows: Sequence[dict], names: Sequence[str], kind: str, label: str, tol: float | None, log: bool = False
) -> str:
    """Gaps, or objectives, of rows {"head", "seconds", ...} of a history against seconds."""
    draw = _drawn(ConvergenceDisplay(rows, names, tol), kind=kind)

    def drawn(ax: Any) -> None:
        draw(ax)
        ax.set_xlim(left=0.0)
        if log:
            log_scale(ax.yaxis)
        elif kind == "objectives":
            _not_too_close(ax)
        _legend_below(ax)

    return picture(drawn, label, *CURVES)


def _not_too_close(ax: Any) -> None:
    """Show four digits at most of values that are nearly equal."""
    low, high = ax.get_ylim()
    middle = (low + high) / 2
    half = max((high - low) / 2, 1e-3 * abs(middle))
    ax.set_ylim(middle - half, middle + half)


def curves(series: Sequence[Series], labels: tuple[str, str], label: str, unit: bool = False) -> str:
    """Lines (name, x, y), with a legend when there are several.

    unit : whether both axes go from 0 to 1, with the diagonal between them.
    """

    def draw(ax: Any) -> None:
        for position, (name, x, y) in enumerate(series):
            line(ax, PAGE, position, thin(x), thin(y), name)
        if unit:
            ax.plot(
                [0, 1], [0, 1], color=PAGE.soft, linestyle=":", linewidth=1.0, zorder=0, label="_nolegend_"
            )
            ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.set(xlabel=labels[0], ylabel=labels[1])
        if len(series) > 1:
            _legend_below(ax)

    width, height = CURVES
    return picture(draw, label, width, 1.3 * height if unit else height)


def histogram(values: np.ndarray, labels: tuple[str, str], label: str, bins: int = 30) -> str:
    """Counts of values in equal bins."""

    def draw(ax: Any) -> None:
        counts, edges, patches = ax.hist(values, bins=bins, color=PAGE.line(0), rwidth=0.92)
        for bar, count, start, stop in zip(patches, counts, edges[:-1], edges[1:], strict=True):
            hint(bar, f"{start:.4g} to {stop:.4g}: {number(count)}")
        ax.set(xlabel=labels[0], ylabel=labels[1])

    return picture(draw, label, *CURVES)


def cloud(x: np.ndarray, y: np.ndarray, labels: tuple[str, str], label: str) -> str:
    """Points, and the line on which both are equal."""

    def draw(ax: Any) -> None:
        ends = [min(x.min(), y.min()), max(x.max(), y.max())]
        ax.plot(ends, ends, color=PAGE.soft, linestyle=":", linewidth=1.0)
        ax.plot(
            thin(x, MOST_DOTS), thin(y, MOST_DOTS), "o", color=PAGE.line(0), markersize=4, alpha=0.6, mew=0
        )
        ax.set(xlabel=labels[0], ylabel=labels[1])

    width, height = CURVES
    return picture(draw, label, width, 1.3 * height)
