"""matplotlib's SVG as a piece of the page.

Pictures are drawn in colours that stand for those of the page (`PAGE`, `THEME`), and these are put in their
place here: text in the colour of the text around, all else in colours of `style`, which follow the reader's
light or dark setting. What remains has no ids, no links, no background and no font of its own, and says what
it shows to those who do not see it.
"""

from __future__ import annotations

import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any

from ...plot.drawing import Style, need_matplotlib, printable
from .markup import escape

# Colours that are drawn with, and what stands for them on the page.
_NAMES = [*(f"--s{k}" for k in range(8)), "--soft", "--grid", "--heat", "--below", "--on-heat"]
_MARKERS = {name: f"#0101{k + 1:02x}" for k, name in enumerate(_NAMES)}
_INK = "#010100"
COLORS = {**{marker: f"var({name})" for name, marker in _MARKERS.items()}, _INK: "currentColor"}
PAGE = Style(
    lines=tuple(_MARKERS[f"--s{k}"] for k in range(8)),
    soft=_MARKERS["--soft"],
    ink=_INK,
    cells=(_MARKERS["--heat"], _MARKERS["--below"], _MARKERS["--on-heat"]),
)
THEME = {
    "font.size": 11.0,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _MARKERS["--soft"],
    "axes.facecolor": "none",
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _MARKERS["--grid"],
    "xtick.color": _MARKERS["--soft"],
    "ytick.color": _MARKERS["--soft"],
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "raymkl",
}
# Pictures may grow by this much where there is room, so that their text is as large as that of the page.
GROWTH = 1.25
# Before every tooltip in the name of an artist; no name that can be printed holds it.
HINT = "\ue000"
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
# What is said of a path or text by default.
_DEFAULTS = {"stroke-dashoffset": "0", "stroke-opacity": "1", "opacity": "1", "stroke-linejoin": "miter"}


def picture(draw: Callable[[Any], None], label: str, width: float, height: float) -> str:
    """What `draw` draws on matplotlib's axes, as SVG within HTML.

    width, height : of the plotting area, in pixels; names and numbers beside it come on top. label : what the
    picture shows, in words. Artists may have tooltips (see `hint`).
    """
    need_matplotlib()
    from matplotlib import style
    from matplotlib.figure import Figure

    text = StringIO()
    # Settings of users (a style, a face, TeX) are not those of the page.
    with style.context(["default", THEME]), warnings.catch_warnings():
        # The reader's browser has the letters that matplotlib's face lacks.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")
        figure = Figure(figsize=(width / 72, height / 72))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        draw(axes)
        axes.set_title("")
        figure.savefig(text, format="svg", bbox_inches="tight", pad_inches=0.03, metadata={"Date": None})
    return inline(text.getvalue(), label)


def hint(artist: Any, *texts: str) -> None:
    """Give an artist a tooltip, or each part of a collection its own."""
    artist.set_gid(HINT + HINT.join(map(printable, texts)))


def inline(text: str, label: str) -> str:
    """A whole SVG file of matplotlib as a piece of a page."""
    root = ET.fromstring(text)
    _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
    marks = {
        element.attrib["id"]: element
        for element in root.iter()
        if _tag(element) == "path" and "id" in element.attrib
    }
    inside = "".join(_piece(child, marks) for child in root)
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(label)}" '
        f'fill="currentColor" style="max-width:{GROWTH * width:.0f}px">{inside}</svg>'
    )


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _piece(element: ET.Element, marks: Mapping[str, ET.Element], title: str = "") -> str:
    """What is seen of an element and those inside it; empty for all that is not."""
    kind = _tag(element)
    if kind == "g":
        return _group(element, marks)
    if kind == "text":
        return _text(element)
    if kind == "use":
        mark = marks[next(value for name, value in element.attrib.items() if name.endswith("href"))[1:]]
        x, y = (_short(float(element.attrib.get(name, "0"))) for name in "xy")
        style = {**_style(mark), **_style(element)}
        return _path(mark.attrib["d"], style, f' transform="translate({x} {y})"', title)
    return _path(element.attrib["d"], _style(element), "", title) if kind == "path" else ""


def _group(element: ET.Element, marks: Mapping[str, ET.Element]) -> str:
    name = element.attrib.get("id", "")
    titles = name.split(HINT)[1:]
    children = [child for child in element if _tag(child) != "defs"]
    titles += [""] * (len(children) - len(titles))
    return "".join(_piece(child, marks, title) for child, title in zip(children, titles, strict=False))


def _path(path: str, style: dict[str, str], more: str, title: str) -> str:
    if style.get("fill") == "none" and style.get("stroke", "none") == "none":
        return ""
    path = _NUMBER.sub(lambda found: _short(float(found.group())), " ".join(path.split()))
    path = re.sub(r" ?([MLCQz]) ?", r"\1", path)
    inside = f"<title>{escape(title)}</title></path>" if title else "</path>"
    return f'<path d="{path}"{more}{_written(style)}>{inside}'


def _text(element: ET.Element) -> str:
    """Text keeps its size, its place and its colour; the face is that of the page."""
    style = _style(element)
    font = style.pop("font", "") + style.pop("font-size", "")
    size = re.search(r"([\d.]+)px", font)
    style = {name: value for name, value in style.items() if not name.startswith("font")}
    style["font-size"] = f"{float(size.group(1)) if size else THEME['font.size']:g}px"
    places = {name: element.attrib[name] for name in ("x", "y", "transform") if name in element.attrib}
    where = "".join(
        f' {name}="{_NUMBER.sub(lambda found: _short(float(found.group())), value)}"'
        for name, value in places.items()
        if not value.startswith("rotate(-0 ")
    )
    return f"<text{where}{_written(style)}>{escape(''.join(element.itertext()))}</text>"


def _style(element: ET.Element) -> dict[str, str]:
    """Properties of an element, with the colours of the page."""
    pairs = (part.partition(":") for part in element.attrib.get("style", "").split(";") if ":" in part)
    found = {name.strip(): value.strip() for name, _, value in pairs}
    return {name: COLORS.get(value, value) for name, value in found.items() if _DEFAULTS.get(name) != value}


def _written(style: Mapping[str, str]) -> str:
    words = ";".join(
        f"{name}:{value}" for name, value in style.items() if (name, value) != ("fill", "currentColor")
    )
    return f' style="{words}"' if words else ""


def _short(value: float) -> str:
    """A number with two digits after the point at most."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
