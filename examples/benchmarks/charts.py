"""Pictures of the benchmarks: a PNG beside every table."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def plot(
    path: Path, draw: Callable[..., None], panels: int = 1, width: float = 6.4, height: float = 4.4
) -> None:
    """Write a PNG: `draw` gets one pair of axes per panel. Without matplotlib, says so and goes on."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print(f"# matplotlib is not installed, {path} is left out (pip install matplotlib)")
        return
    figure, axes = plt.subplots(
        1, panels, figsize=(width * panels, height), squeeze=False, layout="constrained"
    )
    draw(*axes[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"# wrote {path}")


def bars(
    axes: Any,
    names: Sequence[Any],
    series: Mapping[str, Sequence[float | None]],
    title: str,
    style: str = ".2f",
) -> None:
    """Lying bars: for every name, from top to bottom, one per series with its value written beside it. Values
    of None are left out.

    style : how values are written. A series of its own colour is named in a legend when there are several.
    """
    height = 0.8 / len(series)
    for k, (label, values) in enumerate(series.items()):
        there = [
            (place + (k - (len(series) - 1) / 2) * height, value)
            for place, value in enumerate(values)
            if value is not None
        ]
        if there:
            drawn = axes.barh(*zip(*there, strict=True), height=0.92 * height, label=label)
            axes.bar_label(drawn, [format(value, style) for _, value in there], padding=3)
    axes.set_yticks(range(len(names)), [str(name) for name in names])
    axes.invert_yaxis()
    axes.set_title(title)
    axes.margins(x=0.15)  # room for the numbers
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    if len(series) > 1:
        axes.legend()
