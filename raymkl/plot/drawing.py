"""How pictures are drawn: colours, names, bars, lines, heat maps. Displays and the report share it.

Names of users are shown as they are: no formulas in them, and none is hidden because it begins with an
underscore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Any

import numpy as np

# The palette of Okabe and Ito, safe for colour-blind readers.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F", "#000000")
HEAT = "cividis"
# Names of rows, and in legends, that are longer are shortened in the middle.
LONGEST_NAME, LONGEST_LABEL = 34, 60
# Heat maps with at most so many columns and rows carry their numbers.
ANNOTATED, ANNOTATED_ROWS = 12, 60
# Lines with at most so many points show them.
MARKED = 60
# Column names stand upright beside each other up to this length, and lean where there are at most so many.
UPRIGHT, LEANING = 3, 20
DASHES = ("-", "--", ":")
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Style:
    """Colours of a picture.

    lines : of series, one after the other. soft, ink : of marks across the picture, and of what is black.
    cells : None for heat maps in `HEAT` with a colour bar; else colours of cells above zero, of cells below
    zero and of numbers on strong cells: a cell is as strong as its value is large.
    """

    lines: tuple[str, ...] = PALETTE
    soft: str = PALETTE[6]
    ink: str = PALETTE[7]
    cells: tuple[str, str, str] | None = None

    def line(self, position: int) -> str:
        """The colour of a series."""
        return self.lines[position % len(self.lines)]

    def dash(self, position: int) -> str:
        """The dashes of a series: others when colours come again."""
        return DASHES[position // len(self.lines) % len(DASHES)]


SCREEN = Style()


def need_matplotlib() -> None:
    """Raise an error in words where matplotlib is not there."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib, which comes with raymkl but is not there; run: pip install matplotlib"
        ) from error


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    """The text, with its middle left out when it is too long.

    Parameters
    ----------
    text : str
        Any.
    longest : int
        Characters at most.

    Returns
    -------
    text : str
        As it was, or with an ellipsis.

    Examples
    --------
    >>> from raymkl.plot import shorten
    >>> shorten("WeightedDegree(degree=20)", 12)
    'Weighted…20)'
    """
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 3
    return f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"


def literal(name: Any, longest: int = LONGEST_NAME) -> str:
    """A name that matplotlib shows unchanged: no dollar begins a formula."""
    return shorten(printable(name), longest).replace("$", r"\$")


def printable(name: Any) -> str:
    """A name on one line, with a box for every character that has no form."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(str(name).split("\n")))


def line(
    ax: Any, style: Style, position: int, x: Any, y: Any, label: str, dash: str = "", **more: Any
) -> None:
    """A series, the `position`-th of its picture; its points are seen when there are few."""
    ax.plot(
        x,
        y,
        color=style.line(position),
        linestyle=dash or style.dash(position),
        marker="." if len(x) <= MARKED else None,
        label=literal(label, LONGEST_LABEL),
        **more,
    )


def legend(ax: Any, **more: Any) -> None:
    """Names of all that has one; older matplotlib leaves out those that begin with an underscore."""
    handles = [
        handle
        for handle in (*ax.lines, *ax.collections, *ax.containers, *ax.patches)
        if not str(handle.get_label()).startswith(("_child", "_nolegend"))
    ]
    labels = [str(handle.get_label()) for handle in handles]
    ax.legend(
        handles,
        [f" {label}" if label.startswith("_") else label for label in labels],
        **{"fontsize": "small", **more},
    )


def named_rows(ax: Any, names: Sequence[str], longest: int = LONGEST_NAME) -> None:
    """One row per name, the first at the top."""
    ax.set_yticks(range(len(names)), [literal(name, longest) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(False, axis="y")


def bars(
    ax: Any, style: Style, names: Sequence[str], parts: Sequence[tuple[str, Any]], longest: int = LONGEST_NAME
) -> None:
    """Horizontal bars with their values, one per name, made of parts (label, (k,) values >= 0)."""
    total: Any = np.zeros(len(names))
    for position, (label, values) in enumerate(parts):
        values = np.asarray(values, np.float64)
        ax.barh(range(len(names)), values, left=total, color=style.line(position), label=literal(label))
        total = total + values
    named_rows(ax, names, longest)
    for place, value in enumerate(total):
        ax.annotate(
            f"{value:.4g}",
            (max(value, 0.0), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            annotation_clip=False,
        )
    largest = float(np.max(total, initial=0.0))
    ax.set_xlim(0.0, 1.12 * largest if largest > 0 else 1.0)


def heat_map(
    ax: Any,
    style: Style,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    low: float,
    high: float,
    label: str,
    longest: int = LONGEST_NAME,
) -> None:
    """Cells coloured by their values (rows, columns) from `low` to `high`, with numbers where they fit.

    label : what the numbers are.
    """
    if style.cells is None:
        image = ax.imshow(values, cmap=HEAT, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        ax.figure.colorbar(image, ax=ax, label=label)
        strong = values >= low + 0.55 * (high - low)
        plain, on = "white", "black"
    else:
        strong = _draw_cells(ax, style.cells, values, max(abs(low), abs(high), 1e-300)) > 0.55
        plain, on = style.ink, style.cells[2]
    ax.grid(False)
    names = [literal(name, longest) for name in columns]
    turned = {"rotation": 45 if len(names) <= LEANING else 90, "ha": "right", "rotation_mode": "anchor"}
    if len(names) > LEANING:
        turned["va"] = "center"
    ax.set_xticks(range(len(names)), names, **(turned if max(map(len, names), default=0) > UPRIGHT else {}))
    ax.set_yticks(range(len(rows)), [literal(name, longest) for name in rows])
    if values.shape[0] <= ANNOTATED_ROWS and values.shape[1] <= ANNOTATED:
        for (i, j), value in np.ndenumerate(values):
            # No minus before a number that is rounded to zero.
            words = f"{value:.2f}".replace("-0.00", "0.00") if value else "0"
            ax.text(
                j, i, words, ha="center", va="center", fontsize="small", color=on if strong[i, j] else plain
            )


def _draw_cells(ax: Any, colors: tuple[str, str, str], values: np.ndarray, largest: float) -> np.ndarray:
    """Cells in one colour above zero and one below, as strong as |value| / largest; these shares."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba

    shares = np.minimum(np.abs(np.nan_to_num(np.asarray(values, np.float64))) / largest, 1.0)
    fills = np.where((values < 0)[..., None], to_rgba(colors[1]), to_rgba(colors[0]))
    fills[..., 3] = 0.05 + 0.95 * shares
    up, across = np.indices(values.shape).reshape(2, -1)
    half = 0.48  # a little less than a half, so that cells are seen apart
    corners = np.array([[-half, -half], [half, -half], [half, half], [-half, half]])
    cells = np.column_stack([across, up])[:, None, :] + corners
    ax.add_collection(PolyCollection(cells, facecolors=fills.reshape(-1, 4), linewidths=0))
    ax.set(xlim=(-0.5, values.shape[1] - 0.5), ylim=(values.shape[0] - 0.5, -0.5))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return shares


def log_scale(axis: Any) -> None:
    """A logarithmic axis (`ax.xaxis`, `ax.yaxis`) whose numbers are plain text; values <= 0 are left out."""
    from matplotlib.ticker import FuncFormatter

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log", nonpositive="mask")
    axis.axes.tick_params(which="minor", labelsize="small")

    def power(value: float, _: Any) -> str:
        exponent = round(log10(value)) if value > 0 else 0
        return f"{value:g}" if -4 < exponent < 5 else "10" + str(exponent).translate(SUPERSCRIPTS)

    def between(value: float, _: Any) -> str:
        low, high = sorted(axis.get_view_interval())
        decades = log10(high / low) if low > 0 else 9.0
        leading = round(value / 10.0 ** floor(log10(value))) if value > 0 else 0
        return f"{value:g}" if decades < 0.5 or (decades < 2 and leading in (2, 5)) else ""

    axis.set_major_formatter(FuncFormatter(power))
    axis.set_minor_formatter(FuncFormatter(between))
