"""Loops of banks: compiled together with those of one kernel on a new machine, and in all forms that a fit
needs.
"""

import pytest

from raymkl import MKLClassifier
from raymkl.datasets import make_motif_sequences
from raymkl.kernels import WeightedDegree
from raymkl.kernels.loops import match_counts as match_counts_compiled
from raymkl.kernels.pairs import match_counts, string_statistics
from raymkl.kernels.pairs.string_statistics import is_new

LOOPS = ["match_counts", "accumulate_counts", "combine_counts", "reuse_pairs"]
BANK = [WeightedDegree(degree=degree) for degree in range(1, 9)]
SEQUENCES, LABELS = make_motif_sequences(400)[:2]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fit_needs_no_other_form_of_the_loops(dtype):
    match_counts.compile_loops()
    loops = [getattr(match_counts_compiled, name) for name in LOOPS]
    forms = [set(loop.signatures) for loop in loops]
    MKLClassifier(kernels=BANK, normalize="spherical", engine="local", dtype=dtype).fit(SEQUENCES, LABELS)
    assert [set(loop.signatures) for loop in loops] == forms


@pytest.mark.parametrize("new", [True, False])
def test_a_new_machine_compiles_for_banks_as_well(monkeypatch, new):
    compiled = []
    monkeypatch.setattr(string_statistics, "is_new", lambda loop: new)
    monkeypatch.setattr(match_counts, "compile_loops", lambda: compiled.append(1))
    MKLClassifier(kernels=[WeightedDegree(degree=2)], engine="local").fit(SEQUENCES[:50], LABELS[:50])
    assert bool(compiled) == new


def test_new_is_what_numba_had_to_compile():
    class Loop:
        class stats:
            cache_misses = {}

    assert not is_new(Loop) and not is_new(len)
    Loop.stats.cache_misses = {"a form": 1}
    assert is_new(Loop)
