"""Charts as plain SVG text: bars, heat maps, curves, histograms, scatter plots.

Every function returns HTML. Colours are CSS classes (see `style`), so a picture follows the reader's light or
dark setting. Sizes come from the names and the number of cells, so that labels never overlap. All text is
escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

import numpy as np

from ...plot import shorten
from .style import DASHES

# Widths of characters at 12 px in a wide sans-serif face; narrower faces leave a little room.
WIDTHS = {
    **dict.fromkeys("()[]{}-:;/\\", 4.9),
    **dict.fromkeys(" .,'|ijltfI", 4.2),
    **dict.fromkeys("=+<>~#%…mwMWQO@", 10.6),
}
LETTER, CAPITAL = 7.7, 8.7
MOST_POINTS = 400
# Degrees by which column names rise: more in narrow columns, where they would touch.
SLANT, STEEP, NARROW = 40, 62, 30


def escape(value: Any) -> str:
    """Text for HTML; addresses in it are broken up, so that the file never looks as if it referred to one."""
    return html.escape(str(value), quote=True).replace("://", ":&#47;&#47;")


def number(value: Any) -> str:
    """A number to be read: four significant digits, thousands separated; a dash where there is none."""
    value = float("nan") if value is None else float(value)
    if not np.isfinite(value):
        return "∞" if value > 0 else "-∞" if value < 0 else "—"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:.4g}"


class Canvas:
    """Pieces of one SVG picture of the given size."""

    def __init__(self, width: float, height: float, label: str):
        self.width, self.height, self.label, self.pieces = width, height, label, []

    def add(self, piece: str) -> None:
        self.pieces.append(piece)

    def text(
        self,
        x: float,
        y: float,
        words: Any,
        anchor: str = "start",
        kind: str = "",
        turn: float = 0,
        full: str = "",
    ) -> None:
        turned = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
        style = f' class="{kind}"' if kind else ""
        hint = f"<title>{escape(full)}</title>" if full and full != str(words) else ""
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" '
            f'text-anchor="{anchor}"{style}{turned}>{escape(words)}{hint}</text>'
        )

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str,
        hint: str = "",
        opacity: float | None = None,
    ) -> None:
        shade = "" if opacity is None else f' fill-opacity="{opacity:.3f}"'
        title = f"<title>{escape(hint)}</title>" if hint else ""
        self.add(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" '
            f'class="{kind}"{shade}>{title}</rect>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def html(self) -> str:
        # On a narrow screen a picture shrinks until its text becomes hard to read, then it scrolls.
        size = f"max-width:{self.width:.0f}px;min-width:{0.72 * self.width:.0f}px"
        return (
            f'<svg viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img" '
            f'aria-label="{escape(self.label)}" style="{size}">'
            f"{''.join(self.pieces)}</svg>"
        )


def figure(caption: str, *parts: str) -> str:
    """A picture, or several, with a caption above."""
    return f"<figure><figcaption>{caption}</figcaption>{''.join(parts)}</figure>"


def text_width(text: str) -> float:
    """Pixels that a text takes at 12 px, rather too many than too few."""
    return sum(
        WIDTHS.get(letter, CAPITAL if letter.isupper() else LETTER if ord(letter) < 0x2E80 else 12.5)
        for letter in text
    )


def _name_width(names: Sequence[str], longest: int) -> float:
    return 12 + max((text_width(shorten(name, longest)) for name in names), default=0)


def bars(
    names: Sequence[str],
    values: np.ndarray,
    label: str,
    kind: str = "f0",
    longest: int = 38,
    width: float = 780,
) -> str:
    """Horizontal bars with their values, one per name, in the given order. values : (k,) >= 0."""
    values = np.asarray(values, np.float64)
    left, step = _name_width(names, longest), 22
    canvas = Canvas(width, step * len(names) + 6, label)
    largest = max(float(np.max(values, initial=0.0)), 1e-300)
    for k, (name, value) in enumerate(zip(names, values, strict=True)):
        y, length = step * k + 3, (width - left - 76) * max(value, 0.0) / largest
        canvas.text(left - 8, y + 13, shorten(name, longest), "end", full=name)
        canvas.rect(left, y + 1, max(length, 0.8), step - 7, kind, f"{name}: {value:.6g}")
        canvas.text(left + length + 6, y + 13, number(value), kind="soft")
    canvas.line(left, 2, left, canvas.height - 3, "axis")
    return canvas.html()


def stacked_bars(
    names: Sequence[str], parts: Sequence[tuple[str, np.ndarray]], label: str, width: float = 470
) -> str:
    """Horizontal bars made of several parts (name, (k,) counts), with a legend."""
    left, step = _name_width(names, 24), 24
    totals = np.sum([values for _, values in parts], axis=0)
    canvas = Canvas(width, step * len(names) + 6, label)
    scale = (width - left - 60) / max(float(np.max(totals, initial=0.0)), 1.0)
    for k, name in enumerate(names):
        x, y = left, step * k + 3
        canvas.text(left - 8, y + 14, shorten(name, 24), "end", full=name)
        for s, (part, values) in enumerate(parts):
            canvas.rect(
                x, y + 1, scale * values[k], step - 8, f"f{s}", f"{name}, {part}: {number(values[k])}"
            )
            x += scale * values[k]
        canvas.text(x + 6, y + 14, number(totals[k]), kind="soft")
    canvas.line(left, 2, left, canvas.height - 3, "axis")
    return (legend([part for part, _ in parts], filled=True) if len(parts) > 1 else "") + canvas.html()


def legend(names: Sequence[str], filled: bool = False) -> str:
    """Names of series beside a piece of their line, or a patch of their colour."""
    items = []
    for k, name in enumerate(names):
        piece = f'<rect width="16" height="10" class="f{k % 8}"/>' if filled else _stroke("M0 5H26", k)
        items.append(f'<span><svg viewBox="0 0 26 10" aria-hidden="true">{piece}</svg>{escape(name)}</span>')
    return f'<div class="legend">{"".join(items)}</div>'


def _stroke(path: str, k: int) -> str:
    dash = DASHES[k % len(DASHES)]
    return (
        f'<path d="{path}" class="curve '
        f's{k % 8}"{f" stroke-dasharray={chr(34)}{dash}{chr(34)}" if dash else ""}/>'
    )


def heat_map(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    largest: float | None = None,
    width: float = 1000,
    digits: str = ".2f",
    longest: int = 30,
) -> str:
    """Cells shaded by value / largest: blue above zero, orange below. values : (rows, columns)."""
    values = np.asarray(values, np.float64)
    largest = float(np.max(np.abs(values), initial=0.0)) if largest is None else largest
    largest = max(largest, 1e-300)
    left = _name_width(rows, longest)
    reach = [text_width(shorten(name, longest)) for name in columns]
    cell = min(max((width - left - 60) / max(len(columns), 1), 20.0), 62.0)
    turn = STEEP if cell < NARROW else SLANT
    slant = np.deg2rad(turn)
    upright = max(reach, default=0.0) <= cell - 4
    top = 22.0 if upright else 16 + max(reach, default=0) * float(np.sin(slant))
    right = (
        0.0
        if upright
        else max(
            (x * float(np.cos(slant)) - (len(columns) - k - 0.5) * cell for k, x in enumerate(reach)),
            default=0.0,
        )
    )
    height = min(max(cell * 0.8, 22.0), 30.0)
    canvas = Canvas(left + cell * len(columns) + max(right, 4) + 4, top + height * len(rows) + 4, label)
    for k, name in enumerate(columns):
        if upright:
            canvas.text(left + cell * (k + 0.5), top - 7, name, "middle")
        else:
            canvas.text(left + cell * (k + 0.5) + 3, top - 7, shorten(name, longest), turn=-turn, full=name)
    written = cell >= 38 and values.size <= 600
    for i, name in enumerate(rows):
        y = top + height * i
        canvas.text(left - 8, y + height / 2 + 4, shorten(name, longest), "end", full=name)
        for k, column in enumerate(columns):
            value = values[i, k]
            share = min(abs(value) / largest, 1.0) if np.isfinite(value) else 0.0
            canvas.rect(
                left + cell * k + 0.5,
                y + 0.5,
                cell - 1,
                height - 1,
                "below" if value < 0 else "heat",
                f"{name} / {column}: {value:.6g}",
                0.05 + 0.95 * share,
            )
            if written:
                words = "0" if value == 0 else format(value, digits)
                words = (
                    words.lstrip("-") if not words.strip("-0.") else words
                )  # no minus before a number that is rounded to zero
                canvas.text(
                    left + cell * (k + 0.5), y + height / 2 + 4, words, "middle", "on" if share > 0.55 else ""
                )
    canvas.rect(left, top, cell * len(columns), height * len(rows), "frame")
    return canvas.html()


class Axes:
    """A plotting area with ticks: linear, or logarithmic in y."""

    def __init__(
        self,
        canvas: Canvas,
        x: tuple[float, float],
        y: tuple[float, float],
        labels: tuple[str, str],
        log_y: bool = False,
    ):
        self.canvas, self.log_y = canvas, log_y
        self.left, self.right, self.top, self.bottom = 66.0, canvas.width - 22.0, 10.0, canvas.height - 44.0
        self.x_range = x if x[1] > x[0] else (x[0] - 0.5, x[0] + 0.5)
        low, high = y
        if log_y:
            low, high = log10(low), log10(high)
        pad = 0.04 * (high - low) or 0.5 * max(abs(high), 1e-12)
        self.y_range = (low if low == 0 and not log_y else low - pad, high + pad)
        self._draw(labels)

    def px(self, x: Any) -> Any:
        return self.left + (np.asarray(x, np.float64) - self.x_range[0]) / (
            self.x_range[1] - self.x_range[0]
        ) * (self.right - self.left)

    def py(self, y: Any) -> Any:
        y = np.log10(y) if self.log_y else np.asarray(y, np.float64)
        return self.bottom - (y - self.y_range[0]) / (self.y_range[1] - self.y_range[0]) * (
            self.bottom - self.top
        )

    def _draw(self, labels: tuple[str, str]) -> None:
        canvas = self.canvas
        for tick in ticks(*self.x_range, 6):
            x = float(self.px(tick))
            canvas.line(x, self.top, x, self.bottom, "grid")
            canvas.text(x, self.bottom + 16, f"{tick:g}", "middle", "soft")
        marks = log_ticks(*self.y_range) if self.log_y else ticks(*self.y_range, 6)
        for tick in marks:
            y = float(self.py(tick))
            canvas.line(self.left, y, self.right, y, "grid")
            canvas.text(self.left - 7, y + 4, f"{tick:g}", "end", "soft")
        canvas.add(f'<path d="M{self.left} {self.top}V{self.bottom}H{self.right}" class="axis"/>')
        canvas.text((self.left + self.right) / 2, canvas.height - 8, labels[0], "middle")
        middle = (self.top + self.bottom) / 2
        canvas.text(13, middle, labels[1], "middle", turn=-90)

    def curve(self, x: np.ndarray, y: np.ndarray, k: int) -> None:
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        fine = np.isfinite(x) & np.isfinite(y) & ((y > 0) | (not self.log_y))
        x, y = thin(x[fine], y[fine])
        if len(x) == 0:
            return
        points = [f"{a:.1f} {b:.1f}" for a, b in zip(self.px(x), self.py(y), strict=True)]
        self.canvas.add(_stroke("M" + "L".join(points), k))
        if len(points) == 1:
            self.canvas.add(
                f'<circle cx="{points[0].split()[0]}" cy="{points[0].split()[1]}" r="3.5" class="f{k % 8}"/>'
            )


def thin(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most `most` evenly spaced points, the last one among them."""
    if len(x) <= most:
        return x, y
    kept = np.unique(np.linspace(0, len(x) - 1, most).astype(int))
    return x[kept], y[kept]


def ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers within [low, high]."""
    rough = (high - low) / max(count, 1)
    unit = 10.0 ** floor(log10(rough)) if rough > 0 else 1.0
    step = (
        next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
        if rough > 0
        else 1.0
    )
    first = ceil(low / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within 10^[low, high]; between them 2 and 5 when there are few; every second or third
    when there are many.
    """
    powers = list(range(ceil(low), floor(high) + 1))
    if len(powers) < 2:
        return [
            f * 10.0**k
            for k in range(floor(low), floor(high) + 1)
            for f in (1, 2, 5)
            if low <= k + log10(f) <= high
        ]
    return [10.0**k for k in powers[:: max(1, ceil(len(powers) / 7))]]


def curves(
    series: Sequence[tuple[str, np.ndarray, np.ndarray]],
    labels: tuple[str, str],
    label: str,
    log_y: bool = False,
    level: tuple[str, float] | None = None,
    diagonal: bool = False,
    y_range: tuple[float, float] | None = None,
    x_from: float | None = None,
    width: float = 480,
    height: float = 290,
) -> str:
    """Lines (name, x, y), with a legend when there are several.

    level : name and value of a dotted line across. x_from : left end.
    """
    x = np.concatenate([np.asarray(part[1], np.float64) for part in series])
    y = np.concatenate(
        [np.asarray(part[2], np.float64) for part in series] + ([np.array([level[1]])] if level else [])
    )
    y = y[np.isfinite(y) & ((y > 0) | (not log_y))]
    if len(x) == 0 or len(y) == 0:
        return '<p class="soft">Nothing was recorded to draw.</p>'
    canvas = Canvas(width, height, label)
    x_range = (float(x.min()) if x_from is None else x_from, float(x.max()))
    axes = Axes(canvas, x_range, y_range or (float(y.min()), float(y.max())), labels, log_y)
    if level:
        at = float(axes.py(level[1]))
        canvas.line(axes.left, at, axes.right, at, "mark")
        canvas.text(
            axes.left + 6, at - 5, level[0], kind="soft"
        )  # on the left, where curves that fall are far above it
    if diagonal:
        canvas.line(axes.px(0.0), axes.py(0.0), axes.px(1.0), axes.py(1.0), "mark")
    for k, (_, xs, ys) in enumerate(series):
        axes.curve(xs, ys, k)
    return (legend([name for name, *_ in series]) if len(series) > 1 else "") + canvas.html()


def histogram(
    values: np.ndarray,
    labels: tuple[str, str],
    label: str,
    bins: int = 30,
    width: float = 480,
    height: float = 260,
) -> str:
    """Counts of values in equal bins."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return '<p class="soft">There is nothing to count.</p>'
    low, high = float(values.min()), float(values.max())
    if high <= low:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(values, bins=bins, range=(low, high))
    canvas = Canvas(width, height, label)
    axes = Axes(canvas, (float(edges[0]), float(edges[-1])), (0.0, float(counts.max())), labels)
    base = float(axes.py(0.0))
    for count, start, stop in zip(counts, edges[:-1], edges[1:], strict=True):
        if count:
            x, top = float(axes.px(start)), float(axes.py(count))
            canvas.rect(
                x + 0.5,
                top,
                float(axes.px(stop)) - x - 1,
                base - top,
                "f0",
                f"{start:.4g} to {stop:.4g}: {count}",
            )
    return canvas.html()


def scatter(
    x: np.ndarray, y: np.ndarray, labels: tuple[str, str], label: str, width: float = 480, height: float = 380
) -> str:
    """Points, and the line on which both are equal."""
    x, y = thin(np.asarray(x, np.float64), np.asarray(y, np.float64), 1500)
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    canvas = Canvas(width, height, label)
    axes = Axes(canvas, (low, high), (low, high), labels)
    canvas.line(axes.px(low), axes.py(low), axes.px(high), axes.py(high), "mark")
    for a, b in zip(axes.px(x), axes.py(y), strict=True):
        canvas.add(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" class="f0" fill-opacity="0.6"/>')
    return canvas.html()


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; numbers stand to the right. Cells of type `Markup` are HTML already."""

    def cell(value: Any, tag: str) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            text = value if isinstance(value, Markup) else escape(value)
            return f"<{tag}>{text}</{tag}>"
        return f'<{tag} class="number">{number(value)}</{tag}>'

    numeric = [
        all(isinstance(row[k], int | float | np.number) and not isinstance(row[k], bool) for row in rows)
        for k in range(len(heads))
    ]
    top = "".join(
        f'<th class="number">{escape(name)}</th>' if right else f"<th>{escape(name)}</th>"
        for name, right in zip(heads, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(cell(value, 'td') for value in row)}</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


class Markup(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()
