"""Where in a sequence a decision comes from: the part of every position and piece length in a model over
string kernels.

    contribution of kernel m to f(x) = sum over positions i and piece lengths d of  v_m(x)[d, i]

For weighted-degree kernels v[d, i] belongs to the d letters of x that start at i (matched in support vectors
at the same place, or up to `shift` places away), for spectrum kernels of order d to the d-mer that starts
there (matched anywhere).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.rows import row_count
from ..engine.resources import usable_cpus

if TYPE_CHECKING:
    from ..models.expansion import Expansion

# Examples below which a thread of its own does not pay: each sorts the support vectors once more.
ROWS_PER_THREAD = 32


@dataclass(frozen=True)
class PositionalImportance:
    """What `positional_importance` finds.

    Parameters
    ----------
    kernels : list of int
        Numbers of the K kernels that it looked at, in the order of `kernel_weights_`.
    views : list
        The view that each of them reads.
    values : list of ndarray of shape (n, longest piece, positions)
        One per kernel. Row d - 1 belongs to pieces of d letters. Models with several decision values have (n,
        n_heads, longest piece, positions); averages over the examples have no first axis.

    Examples
    --------
    >>> from raymkl import MKLClassifier, diagnostics, kernels
    >>> from raymkl.datasets import make_motif_sequences
    >>> sequences, label = make_motif_sequences(40, length=20, random_state=0)
    >>> clf = MKLClassifier(kernels=[kernels.WeightedDegree(3)], engine="local").fit(sequences, label)
    >>> diagnostics.positional_importance(clf, sequences, average=True).total().shape
    (3, 20)
    """

    kernels: list[int]
    views: list
    values: list[np.ndarray]

    def total(self, view: Any = None) -> np.ndarray:
        """Sum over the kernels of one view.

        Parameters
        ----------
        view : str, int or None
            Which; None where there is only one.

        Returns
        -------
        values : ndarray of shape (n, longest piece of all, positions)
            As `values`, with the longest piece of all kernels of the view.
        """
        known = list(dict.fromkeys(map(repr, self.views)))
        if view is None and len(known) > 1:
            raise ValueError(f"the kernels read several views, {', '.join(known)}; view must be one of them")
        chosen = [
            array for own, array in zip(self.views, self.values, strict=True) if view is None or own == view
        ]
        if not chosen:
            raise ValueError(
                f"view={view!r} is not read by any of these kernels; they read {', '.join(known)}"
            )
        longest = max(array.shape[-2] for array in chosen)
        result = np.zeros((*chosen[0].shape[:-2], longest, chosen[0].shape[-1]))
        for array in chosen:
            result[..., : array.shape[-2], :] += array
        return result


def positional_importance(
    model: Any, X: Any, *, only: Any = None, average: bool = False, spread: bool = False
) -> PositionalImportance:
    """Contribution of every position and piece length to the decision, for weighted-degree and spectrum
    kernels.

    Summed over positions and lengths, the values of a kernel are its column of `model.contributions(X)`.
    Other kernels of the model (on vectors, products) are left out. The cost grows with n * positions *
    log(support vectors), not with the number of pairs.

    Parameters
    ----------
    model : estimator
        Fitted, with at least one weighted-degree or spectrum kernel, or positive multiples and sums (over one
        view) of them.
    X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
        Examples, in any container that `predict` takes.
    only : iterable of int, or None
        Numbers of the kernels to look at. None: all that are made of string kernels.
    average : bool
        Average over the examples, without holding the values of each.
    spread : bool
        Share the value of a piece equally among its letters, instead of giving it to the position where the
        piece starts. Sums over positions stay as they are; this is what a picture of motifs wants.

    Returns
    -------
    found : PositionalImportance
        `values[k]` of kernel `kernels[k]` is (n, longest piece, positions), and `total(view)` is their sum.

    Examples
    --------
    >>> from raymkl import MKLClassifier, diagnostics, kernels
    >>> from raymkl.datasets import make_motif_sequences
    >>> X, y = make_motif_sequences(200, length=30, motifs=["GATTACA"], noise=0.0, jitter=0, random_state=0)
    >>> clf = MKLClassifier(kernels=[kernels.WeightedDegree(4), kernels.Spectrum(3)], normalize="spherical",
    ...     engine="local").fit(X, y)
    >>> found = diagnostics.positional_importance(clf, X)
    >>> [array.shape for array in found.values], found.total().shape
    ([(200, 4, 30), (200, 3, 30)], (200, 4, 30))
    >>> bool(abs(found.total().sum(axis=(1, 2)) - clf.contributions(X).sum(axis=1)).max() < 1e-9)
    True
    >>> planted = [x for x, label in zip(X, y) if label == 1]  # GATTACA at positions 11 to 17
    >>> picture = diagnostics.positional_importance(clf, planted, average=True,
    ...     spread=True).total().sum(axis=0)
    >>> 11 <= int(picture.argmax()) <= 17
    True

    References
    ----------
    Sonnenburg, Zien, Philips, Raetsch: POIMs: positional oligomer importance matrices. Bioinformatics 24,
    2008 (the idea of looking at positions and lengths; here the contributions themselves are shown).
    """
    from sklearn.utils.validation import check_is_fitted

    from ..data.views import view_of
    from ..models.base import rows_and_gates
    from .centred import unwrapped

    for name, flag in (("average", average), ("spread", spread)):
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {flag!r}")
    if not hasattr(model, "fit"):
        raise TypeError(f"model must be a fitted model, got {type(model).__name__}")
    model, X = unwrapped(model, X)
    check_is_fitted(model, "expansion_")
    parts = [string_parts(kernel) for kernel in model.kernels_]
    chosen = _chosen(model.kernels_, parts, only)
    rows, gates = rows_and_gates(model, X)
    sums = _Sums(model.expansion_, rows, gates, bool(average))
    values: dict[int, np.ndarray] = {}
    for view in dict.fromkeys(parts[m][0][1].views[0] for m in chosen):
        own = [m for m in chosen if parts[m][0][1].views[0] == view]
        for m, array in zip(own, sums.of_view(view, own, [parts[m] for m in own]), strict=True):
            if (
                array.shape[1] == len(getattr(model, "classes_", ())) == 2
            ):  # a sum per class, whose difference is the decision value
                array = array[:, 1:] - array[:, :1]
            array = _spread(array) if spread else array
            array = array[:, 0] if array.shape[1] == 1 else array  # one decision value per example
            values[m] = array[0] if average else array
    return PositionalImportance(
        chosen, [view_of(parts[m][0][1].views[0]) for m in chosen], [values[m] for m in chosen]
    )


def string_parts(kernel: Any) -> list[tuple[float, Any]] | None:
    """The (factor, string kernel) that a kernel is the sum of, all over one view; None when it is not of that
    kind.
    """
    from ..kernels.base import Scaled, Sum
    from ..kernels.strings import Spectrum, WeightedDegree

    if isinstance(kernel, Spectrum | WeightedDegree):
        return [(1.0, kernel)]
    if isinstance(kernel, Scaled):
        inner = string_parts(kernel.kernel)
        return None if inner is None else [(kernel.scale * factor, part) for factor, part in inner]
    if isinstance(kernel, Sum):
        left, right = string_parts(kernel.left), string_parts(kernel.right)
        if left is not None and right is not None and left[0][1].views == right[0][1].views:
            return left + right
    return None


def _chosen(kernels: Sequence, parts: Sequence, only: Any) -> list[int]:
    """Numbers of the kernels to look at."""
    readable = [m for m, part in enumerate(parts) if part is not None]
    if not readable:
        raise ValueError(
            f"model has no weighted-degree or spectrum kernel; its kernels are {list(kernels)[:8]!r}"
        )
    if only is None:
        return readable
    numbers = np.atleast_1d(np.asarray(only))
    if (
        numbers.dtype.kind not in "iu"
        or len(numbers) == 0
        or numbers.min() < 0
        or numbers.max() >= len(kernels)
    ):
        raise ValueError(f"only must be numbers of kernels from 0 to {len(kernels) - 1}, got {only!r}")
    for m in numbers:
        if parts[m] is None:
            raise ValueError(
                f"only names kernel {m}, {kernels[m]!r}, which is not made of string kernels over one view"
            )
    return [int(m) for m in numbers]


def longest_piece(part: Any) -> int:
    """Letters of the longest pieces that a string kernel compares."""
    return int(part.degree) if hasattr(part, "degree") else int(part.k)


class _Sums:
    """Sums over the support vectors of a model's `Expansion`, for examples given by their rows and gates.

    A *channel* is one part of one entry of the model (a kernel, in localized models once per cluster) in one
    head.
    """

    def __init__(self, expansion: Expansion, rows: dict, gates: np.ndarray | None, average: bool):
        self.expansion, self.rows, self.gates, self.average = expansion, rows, gates, average
        self.n = row_count(rows)

    def of_view(self, view: Any, members: list[int], parts: list[list]) -> list[np.ndarray]:
        """(n or 1, n_heads, longest piece, positions) of each of the kernels `members`, which read the
        view.
        """
        letters = self.rows[view]
        n_heads = len(self.expansion.coefficients)
        longest = [max(longest_piece(part) for _, part in own) for own in parts]
        out = np.zeros((1 if self.average else self.n, len(members), n_heads, max(longest), letters.shape[1]))
        groups: dict[tuple, list] = {}
        for target, (m, own) in enumerate(zip(members, parts, strict=True)):
            for factor, part in own:
                # Kernels that match the same pieces in the same places are served together.
                groups.setdefault((type(part).__name__, _same_pieces(part)), []).extend(
                    self._channels(m, target, factor, part)
                )
        for (kind, _), channels in groups.items():
            if channels:
                (self._weighted_degree if kind == "WeightedDegree" else self._spectrum)(view, channels, out)
        return [out[:, target, :, : longest[target]] for target in range(len(members))]

    def _channels(self, m: int, target: int, factor: float, part: Any) -> list[tuple]:
        """(part, factor, target, head, (S,) coefficients, (n,) weights of the examples) of every entry of
        kernel m that counts.
        """
        expansion, found = self.expansion, []
        for entry in expansion.entries_of(m):
            gate, weights = expansion.gate_of_entry[entry], expansion.weights[:, entry]
            mine = np.full(self.n, 1.0 / self.n if self.average else 1.0)
            if gate >= 0:
                mine = mine * self.gates[:, gate]
            coefficients = expansion.coefficients_of(entry)
            for head in np.flatnonzero(weights):
                found.append((part, factor, target, int(head), coefficients[head], weights[head] * mine))
        return found

    def _weighted_degree(self, view: Any, channels: list[tuple], out: np.ndarray) -> None:
        from ..data.alphabet import code_table, letters_of
        from ..kernels.loops.positional import shared_pieces

        part = channels[0][0]
        table = code_table(letters_of(part.alphabet))
        support, codes = table[self.expansion.support_rows[view]], table[self.rows[view]]
        if support.shape[1] != codes.shape[1]:
            raise ValueError(
                "weighted-degree kernels compare sequences of equal length, but those of X have length "
                f"{codes.shape[1]} and the model "
                f"was fitted to length {support.shape[1]}"
            )
        reach = np.array([int(own.degree) for own, *_ in channels])
        factors = np.zeros((len(channels), reach.max()))
        for r, (own, factor, *_) in enumerate(channels):
            degree = int(own.degree)
            factors[r, :degree] = factor * 2.0 * (degree - np.arange(degree)) / (degree * (degree + 1))
        target, heads = np.array([c[2] for c in channels]), np.array([c[3] for c in channels])
        coefficients = np.stack([c[4] for c in channels], axis=1)
        weights = np.stack([c[5] for c in channels], axis=1)
        own_rows = np.zeros(self.n, np.int64) if self.average else np.arange(self.n)
        workers = max(1, min(usable_cpus(), self.n // ROWS_PER_THREAD))
        edges = np.linspace(0, self.n, workers + 1).astype(int)

        def block(worker: int) -> np.ndarray:
            part_of = slice(edges[worker], edges[worker + 1])
            result = np.zeros_like(out) if self.average and workers > 1 else out
            shared_pieces(
                support,
                coefficients,
                codes[part_of],
                weights[part_of],
                reach,
                factors,
                int(part.shift),
                target,
                heads,
                own_rows[part_of],
                result,
            )
            return result

        if workers == 1:
            block(0)
            return
        with ThreadPoolExecutor(workers) as executor:
            results = list(executor.map(block, range(workers)))
        if self.average:
            for result in results:
                out += result

    def _spectrum(self, view: Any, channels: list[tuple], out: np.ndarray) -> None:
        part = channels[0][0]
        known, holders, _ = _pieces(self.expansion.support_rows[view], part)
        vocabulary, inverse = np.unique(known, return_inverse=True)
        codes, owners, places = _pieces(self.rows[view], part)
        at = np.searchsorted(vocabulary, codes)
        shared = (
            np.flatnonzero(vocabulary[np.minimum(at, len(vocabulary) - 1)] == codes)
            if len(vocabulary)
            else np.empty(0, int)
        )
        at, owners, places = at[shared], owners[shared], places[shared]
        for _, factor, target, head, coefficients, weights in channels:
            sums = np.bincount(inverse, coefficients[holders], minlength=len(vocabulary))
            amounts = factor * sums[at] * weights[owners]
            line = out[:, target, head, int(part.k) - 1]
            if self.average:
                line[0] += np.bincount(places, amounts, minlength=line.shape[1])
            else:
                line[owners, places] += amounts  # every place of a row occurs once


def _same_pieces(part: Any) -> tuple:
    """What string kernels have in common that look for the same pieces in the same places: all but the
    degree.
    """
    from ..data.alphabet import letters_of

    return (letters_of(part.alphabet), *((int(part.shift),) if hasattr(part, "degree") else (int(part.k),)))


def _pieces(rows: Any, part: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes of all k-mers of sequences, the row each stands in, and the place in that row where it starts;
    three arrays of one length.
    """
    from ..data.alphabet import code_table, letters_of
    from ..data.strings import letters_and_starts
    from ..kernels.loops.positional import piece_codes
    from ..kernels.pairs.statistics import _read_only

    letters, starts = letters_and_starts(rows)
    alphabet = letters_of(part.alphabet)
    codes = np.empty(len(letters), np.int64)
    piece_codes(_read_only(letters), starts, code_table(alphabet), int(part.k), len(alphabet), codes)
    used = np.flatnonzero(codes >= 0)
    owners = np.searchsorted(starts, used, side="right") - 1
    return codes[used], owners, used - starts[owners]


def _spread(values: np.ndarray) -> np.ndarray:
    """Values (..., lengths, positions) of pieces by where they start, shared equally among their letters."""
    out = np.empty_like(values)
    positions = np.arange(values.shape[-1])
    for d in range(values.shape[-2]):
        running = np.concatenate(
            [np.zeros((*values.shape[:-2], 1)), np.cumsum(values[..., d, :], axis=-1)], axis=-1
        )
        out[..., d, :] = (running[..., positions + 1] - running[..., np.maximum(positions - d, 0)]) / (d + 1)
    return out
