"""What the benchmark programs share: data, options, tables, time and memory.

Not a program. Every benchmark takes

    --data FILE.npz   MNIST as uint8 arrays X_train, y_train, X_test, y_test (default: the variable
                      RAYMKL_MNIST); without it, digits are generated from scikit-learn's bundled 8 x 8
                      images, and the output says so. Some take any data sets: `data_sets`
    --out DIR         where the CSV table and the PNG go (default: benchmark_results)
    --quick           small sizes, to see that everything works
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import datetime
import gc
import math
import os
import platform
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

TEST_ROWS = 10_000
EXAMPLES = Path(__file__).resolve().parents[1]
ENVIRONMENT = "RAYMKL_MNIST"
ARRAYS = ("X_train", "y_train", "X_test", "y_test")


# -- options ---------------------------------------------------------------------------------------


def parser(description: str | None, any_data: bool = False) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have; the description is the docstring of the program.

    any_data : --data takes several files of any kind (see `data_sets`) instead of MNIST alone, and is None
    without them.
    """
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if any_data:
        options.add_argument(
            "--data",
            metavar="FILE.npz",
            nargs="+",
            help="data sets with arrays X, y (default: bundled and generated ones)",
        )
    else:
        mnist = os.environ.get(ENVIRONMENT)
        options.add_argument(
            "--data", metavar="FILE.npz", default=mnist, help=f"MNIST (default: variable {ENVIRONMENT})"
        )
    options.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("benchmark_results"),
        help="results go here (default: %(default)s)",
    )
    options.add_argument("--quick", action="store_true", help="small sizes")
    options.add_argument("--seed", type=int, default=0, help="of the choice of rows (default: %(default)s)")
    return options


# -- data ------------------------------------------------------------------------------------------


def odd_even(digits: np.ndarray) -> np.ndarray:
    """+1 for odd digits, -1 for even ones."""
    return np.where(digits % 2 == 1, 1, -1)


def scaled(images: np.ndarray) -> np.ndarray:
    """Pixels from 0..255 to 0..1, float32."""
    return images.astype(np.float32) / np.float32(255)


class Digits:
    """Images of digits with odd-or-even labels.

    Attributes: name (for the output), side (pixels of an edge of an image).
    """

    def __init__(
        self, name: str, X_train: np.ndarray, y_train: np.ndarray, X_test: np.ndarray, y_test: np.ndarray
    ):
        self.name = name
        self.side = math.isqrt(X_train.shape[1])
        self._train, self._test = (X_train, y_train), (X_test, y_test)

    def subsample(self, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """n training rows (n, pixels) in 0..1 and their labels; a larger n contains the rows of a smaller
        one.
        """
        images, digits = self._train
        if n > len(images):
            raise SystemExit(f"{self.name} has {len(images)} training rows, {n} were asked for")
        rows = np.random.default_rng(seed).permutation(len(images))[:n]
        return scaled(images[rows]), odd_even(digits[rows])

    def test(self, n: int = TEST_ROWS) -> tuple[np.ndarray, np.ndarray]:
        """The first n test rows (fewer when there are fewer) and their labels."""
        images, digits = self._test
        return scaled(images[:n]), odd_even(digits[:n])


class GeneratedDigits(Digits):
    """Any number of digits made from scikit-learn's 1,797 bundled ones by shifts of up to a pixel and some
    noise.
    """

    # Originals that only test rows are made of: no test row is a shifted training row.
    HELD_OUT = 500

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        images, digits = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(images))
        images, digits = images[order] * (255 / 16), digits[order]
        held_out = slice(0, self.HELD_OUT)
        super().__init__(
            "generated digits (8 x 8, scikit-learn's bundled images shifted and with noise; not MNIST)",
            images[self.HELD_OUT :],
            digits[self.HELD_OUT :],
            images[held_out],
            digits[held_out],
        )

    def subsample(self, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        return self._vary(*self._train, n, seed)

    def test(self, n: int = TEST_ROWS) -> tuple[np.ndarray, np.ndarray]:
        return self._vary(*self._test, n, seed=1_000_003)

    def _vary(
        self, images: np.ndarray, digits: np.ndarray, n: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, len(images), n)
        padded = np.pad(images[rows].reshape(n, self.side, self.side), ((0, 0), (1, 1), (1, 1)))
        down, right = rng.integers(0, 3, (2, n))
        window = np.arange(self.side)
        shifted = padded[
            np.arange(n)[:, None, None],
            (down[:, None] + window)[:, :, None],
            (right[:, None] + window)[:, None, :],
        ]
        noisy = shifted.reshape(n, -1) + rng.normal(0.0, 12.0, (n, self.side**2))
        return scaled(np.clip(np.rint(noisy), 0, 255).astype(np.uint8)), odd_even(digits[rows])


def read_npz(path: str | Path) -> Digits:
    """Digits from an .npz file; exits with a clear message when it is not what is needed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in ARRAYS if name not in file]
            if missing:
                raise SystemExit(
                    f"{path} has no array {', '.join(missing)}; it holds {', '.join(file.files)}"
                )
            return Digits(f"MNIST ({path})", *(file[name] for name in ARRAYS))
    except (OSError, ValueError) as error:
        raise SystemExit(f"--data {path}: {error}") from None


def load_digits_for(options: argparse.Namespace) -> Digits:
    """The digits that --data asks for, or generated ones."""
    return read_npz(options.data) if options.data else GeneratedDigits()


# -- machine and tables ----------------------------------------------------------------------------


def cpu_model() -> str:
    """Name of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> list[str]:
    """Lines that say where and with what a table was measured."""
    import raymkl

    versions = [f"raymkl {raymkl.__version__}"]  # of the code that runs, which need not be the installed one
    for package in ("numpy", "scikit-learn"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{package} {version(package)}")
    return [
        f"machine: {cpu_model()}, {cores()} cores, {platform.system()}, Python {platform.python_version()}",
        f"date: {datetime.datetime.now().astimezone().isoformat(timespec='minutes')}",
        f"versions: {', '.join(versions)}",
    ]


def command() -> str:
    """The command line of this program, with files by their names alone."""
    program, *words = sys.argv
    place = Path(program).resolve()
    known = (
        place.relative_to(EXAMPLES.parent)
        if place.is_relative_to(EXAMPLES)
        else Path("examples") / place.name
    )
    return shlex.join(
        ["python", known.as_posix(), *(Path(word).name if os.sep in word else word for word in words)]
    )


def stamp(path: Path, title: str, *notes: str) -> None:
    """Put lines about a finished table before it: what it is, where, when, with what and by which command it
    was made.
    """
    text = path.read_text(encoding="utf-8")
    lines = [title, *machine(), f"command: {command()}", *notes]
    path.write_text("".join(f"# {line}\n" for line in lines) + text, encoding="utf-8")


class Table:
    """Rows of a study: each is printed as soon as it is known, and the CSV file is complete after every row.

    Parameters
    ----------
    path : of the CSV file; directories are made. title : one line. columns : name -> format ("d", ".2f",
    "<20", ...).
    notes : lines about the data and settings; machine, date, versions and command come before them.
    """

    def __init__(self, path: Path, title: str, columns: Mapping[str, str], notes: Sequence[str] = ()):
        self.path, self.columns = path, dict(columns)
        self.header = [title, *machine(), f"command: {command()}", *notes]
        self.rows: list[dict] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in self.header:
            print(f"# {line}")
        print("  ".join(self._aligned(name, name) for name in self.columns), flush=True)

    def add(self, **row: Any) -> None:
        """Print and write a row; values that are left out or None or NaN show as a dash."""
        unknown = set(row) - set(self.columns)
        if unknown:
            raise KeyError(f"no such column: {sorted(unknown)}")
        self.rows.append({name: row.get(name) for name in self.columns})
        print(
            "  ".join(self._aligned(name, self._text(name, row.get(name))) for name in self.columns),
            flush=True,
        )
        self._write()

    def note(self, line: str) -> None:
        """A line under the table, a comment in the file."""
        self.header.append(line)
        print(f"# {line}", flush=True)
        self._write()

    def column(self, name: str, **where: Any) -> list:
        """Values of a column in the rows whose other columns equal `where`."""
        return [row[name] for row in self.rows if all(row[key] == value for key, value in where.items())]

    def _aligned(self, name: str, text: str) -> str:
        style = self.columns[name]
        if style.startswith("<"):
            return text.ljust(max(len(name), int(style[1:])))
        return text.rjust(max(len(name), 8))

    def _text(self, name: str, value: Any) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "-"
        style = self.columns[name]
        return str(value) if style.startswith("<") else format(value, style)

    def _write(self) -> None:
        with self.path.open("w", newline="") as file:
            file.writelines(f"# {line}\n" for line in self.header)
            writer = csv.DictWriter(file, fieldnames=list(self.columns))
            writer.writeheader()
            writer.writerows(self.rows)


# -- time and memory -------------------------------------------------------------------------------


def timed(call: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Seconds of a call (the least of several) and its last result."""
    best = math.inf
    for _ in range(repeats):
        started = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - started)
    return best, result


def family_of(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # "pid (name) state parent ...", and a name may hold anything but ends at the last bracket.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for process in found:
        found += children.get(process, [])
    return found


def resident_mb(pids: Sequence[int]) -> float:
    """Memory of processes now, in MB; pages that several share count once. NaN where /proc is missing."""
    if not Path("/proc/self/smaps_rollup").exists():
        return math.nan
    kilobytes = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kilobytes += int(line.split()[1])
    return kilobytes * 1024 / 1e6


class MemoryWatch:
    """Samples memory in a thread while the block runs.

    Attributes after the block: peak_mb, the largest memory of all processes together; rise_mb, how far that
    is above the start.
    """

    INTERVAL = 0.1
    # Seconds between two searches for new children: a search reads hundreds of small files and disturbs what
    # is measured.
    SEARCH_INTERVAL = 2.0

    def __enter__(self) -> MemoryWatch:
        gc.collect()
        # Memory that an earlier run freed but the C library kept would hide what this run needs.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        self._pids = family_of(os.getpid())
        self.start_mb = self.peak_mb = resident_mb(self._pids)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        pause, searched = self.INTERVAL, time.perf_counter()
        while not self._stop.wait(pause):
            started = time.perf_counter()
            if started - searched > self.SEARCH_INTERVAL:
                searched, self._pids = started, family_of(os.getpid())
            self.peak_mb = max(self.peak_mb, resident_mb(self._pids))
            # Looking at much memory takes long; at most a fiftieth of the time goes into looking.
            pause = max(self.INTERVAL, 50 * (time.perf_counter() - started))

    @property
    def rise_mb(self) -> float:
        return self.peak_mb - self.start_mb


# -- models ----------------------------------------------------------------------------------------


def fifty_widths() -> list:
    """The bank of the comparisons: 50 Gaussian kernels, gamma = 1, 1/1.2, 1/1.2^2, ..."""
    from raymkl import kernels

    return kernels.rbf([1 / 1.2**m for m in range(50)])


def two_to_the_minus(M: int) -> list:
    """M Gaussian kernels, gamma from 1 down to 2^-20 in equal steps of the exponent."""
    from raymkl import kernels

    return kernels.rbf(1 / 2.0 ** np.linspace(0, 20, M))


def warm_up(X: np.ndarray, y: np.ndarray, rows: int = 300, **settings: Any) -> None:
    """Fit and predict once on a few rows, so that compiling is in nobody's time.

    With 200 kernels, even few support vectors are enough for the tables that large models predict with.
    """
    from raymkl import MKLClassifier

    model = MKLClassifier(
        **{"kernels": two_to_the_minus(200), "dtype": "float32", "engine": "local", **settings}
    )
    model.fit(X[:rows], y[:rows]).predict(X[:rows])


def libsvm(cache_mb: float = 4000, gamma: float = 1 / 64) -> Any:
    """scikit-learn's SVC (LIBSVM) with the one Gaussian kernel of the comparisons."""
    from sklearn.svm import SVC

    return SVC(kernel="rbf", gamma=gamma, C=1.0, cache_size=cache_mb)


def apart(f: np.ndarray, reference: np.ndarray) -> float:
    """Largest difference of two vectors of decision values, in standard deviations of the second."""
    return float(np.abs(f - reference).max() / reference.std())


@contextlib.contextmanager
def ray_cluster() -> Iterator[None]:
    """A Ray of its own on this machine for the time of the block, whatever cluster may be running besides."""
    import ray

    ray.init("local", num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def cpus_for(num_shards: int) -> float:
    """CPUs of each shard such that all find room: one, or an equal share."""
    return min(1.0, (os.cpu_count() or 1) / num_shards)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Slope of log(values) over log(sizes), by least squares over the upper half of the sizes (two points at
    least).
    """
    pairs = sorted((size, value) for size, value in zip(sizes, values, strict=True) if value is not None)
    upper = pairs[-max(2, math.ceil(len(pairs) / 2)) :]
    if len(upper) < 2:
        return math.nan
    x, y = np.log(np.array(upper)).T
    return float(np.polyfit(x, y, 1)[0])
