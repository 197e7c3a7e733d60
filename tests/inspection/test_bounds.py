"""Bounds against their formulas, minimised over fine grids."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl import MKLClassifier, diagnostics, kernels
from raymkl.kernels import write_store
from tests.checks import fails
from tests.reference import dual_exponent, gram, noisy_problem, normalised

BANK = [*kernels.rbf(np.geomspace(0.01, 10, 20)), kernels.Linear(), kernels.Polynomial(degree=2, coef0=1.0)]


def size(x, p):
    x = np.asarray(x, float)
    return x.max() if np.isinf(p) else (x**p).sum() ** (1 / p)


# -- the local factor ------------------------------------------------------------------------------


def naive_local(lengths, p, alpha):
    """min over a fine grid of t in [p, 2]."""
    M, power = len(lengths), 2 / (1 + alpha)
    stars = np.array([dual_exponent(t) for t in np.append(1 / np.linspace(0.5, 1 / p, 20_000), p)])
    stars = np.minimum(stars, 1e6)
    return ((stars * size(lengths, p)) ** power * M ** (1 + power * (1 / stars - 1))).min()


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.floats(0, 10), min_size=1, max_size=40).filter(lambda values: max(values) > 1e-3),
    p=st.one_of(st.floats(1, 2), st.just(1.0), st.just(2.0)),
    alpha=st.floats(1.01, 20),
)
def test_local_factor_by_definition(lengths, p, alpha):
    found = diagnostics.bound_factor(lengths, p=p, decay=alpha)
    assert np.isclose(found.factor[0], naive_local(lengths, p, alpha), rtol=1e-4)
    assert found.best_factor <= found.factor[0] * (1 + 1e-9)
    assert 1 <= found.near_best[0] <= found.best_p <= found.near_best[1] <= 2
    assert found.decay == alpha


@pytest.mark.parametrize("beta, low, high", [(2.0, 1.15, 1.25), (1.0, 1.3, 1.5), (0.5, 1.95, 2.0)])
def test_best_norms_of_three_soft_sparsities(beta, low, high):
    """The simulation in the thesis: 1,000 kernels, alpha = 2, ||w_m|| = m^-beta."""
    found = diagnostics.bound_factor(np.arange(1, 1001.0) ** -beta, decay=2.0)
    assert low < found.best_p <= high
    assert found.p[0] == 1 and np.isclose(found.p[-1], 2)
    assert np.isclose(found.best_factor, found.factor.min(), rtol=1e-3)


def test_the_slowest_decay_counts_and_rows_have_factors_of_their_own():
    lengths = np.array([[3.0, 1.0, 0.1], [1.0, 1.0, 1.0]])
    found = diagnostics.bound_factor(lengths, decay=[4.0, 1.5, np.inf])
    assert found.decay == 1.5 and found.factor.shape == (2, 101) and found.best_p.shape == (2,)
    np.testing.assert_array_equal(found.factor, diagnostics.bound_factor(lengths, decay=1.5).factor)
    for row, one in enumerate(lengths):
        assert diagnostics.bound_factor(one, decay=1.5).best_p == found.best_p[row]
    # Kernels of rank one: the rate no longer depends on the norm.
    np.testing.assert_allclose(diagnostics.bound_factor(lengths, decay=np.inf).factor, 3.0)


# -- complexity ------------------------------------------------------------------------------------


def naive_complexity(traces, n, p, radius):
    """traces : (M,) tr K_m / n."""
    t = 1 / np.linspace(1e-9, 1 - 1e-9, 20_001)
    stars = np.array([dual_exponent(x) for x in (p, *t[t >= p])])
    return radius * min(np.sqrt(s / n * size(traces, s / 2)) for s in np.unique(np.minimum(stars, 200.0)))


@pytest.mark.parametrize("p", [1.0, 1.05, 4 / 3, 2.0, 4.0, np.inf])
def test_complexity_by_definition(p):
    X, _ = noisy_problem()
    traces = np.array([np.trace(kernel(X)) for kernel in BANK]) / len(X)
    assert np.isclose(
        diagnostics.complexity(BANK, X, p=p, radius=1.7), naive_complexity(traces, len(X), p, 1.7), rtol=1e-3
    )


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.floats(1e-3, 10), min_size=1, max_size=30),
    p=st.floats(1, 10),
    radius=st.floats(0.1, 10),
)
def test_complexity_properties(sizes, p, radius):
    stack = np.stack([np.eye(5) * scale for scale in sizes], axis=-1)
    value = diagnostics.complexity(stack, p=p, radius=radius)
    assert np.isclose(value, naive_complexity(np.array(sizes), 5, p, radius), rtol=2e-3)
    assert value <= diagnostics.complexity(stack, p=p + 1.0, radius=radius) * (1 + 1e-9)  # balls grow with p
    assert np.isclose(diagnostics.complexity(4.0 * stack, p=p, radius=radius), 2 * value)
    more = np.concatenate([stack, stack[..., :1]], axis=-1)
    assert value <= diagnostics.complexity(more, p=p, radius=radius) * (1 + 1e-9)


def test_complexity_of_all_sources(tmp_path):
    X, y = noisy_problem()
    K = gram(BANK, X)
    expected = diagnostics.complexity(BANK, X)
    write_store(tmp_path / "k.store", K)
    assert np.isclose(diagnostics.complexity(K), expected)
    assert np.isclose(diagnostics.complexity("precomputed", K), expected)
    assert np.isclose(diagnostics.complexity("precomputed", tmp_path / "k.store"), expected)
    assert np.isclose(diagnostics.complexity(BANK, X, max_rows=10), expected)  # traces are those of all rows
    mixed = [*BANK[:3], kernels.Precomputed(index=1, view="stack")]
    traces = [*(np.mean(kernel.diag(X)) for kernel in BANK[:3]), 1.0]
    views = {"rows": X, "stack": K[..., :2]}
    mixed = [*(type(kernel)(**{**kernel.get_params(), "view": "rows"}) for kernel in BANK[:3]), mixed[-1]]
    assert np.isclose(
        diagnostics.complexity(mixed, views, p=2.0),
        naive_complexity(np.array(traces), len(X), 2.0, 1.0),
        rtol=1e-3,
    )
    for normalize in (None, "multiplicative", "spherical", "trace"):
        model = MKLClassifier(kernels=BANK, engine="local", normalize=normalize).fit(X, y)
        stack = K if normalize is None else normalised(normalize, K)[0]
        assert np.isclose(diagnostics.complexity(model, X, p=1.5), diagnostics.complexity(stack, p=1.5))
    assert diagnostics.complexity(np.zeros((4, 4, 2))) == 0.0


# -- errors ----------------------------------------------------------------------------------------


def test_errors_name_the_argument():
    X, _ = noisy_problem()
    for words, call in (
        (("p must be", "[1, 2]", "decay"), lambda: diagnostics.bound_factor([1.0, 2.0], p=3.0, decay=2.0)),
        (("decay", "> 1", "0.5"), lambda: diagnostics.bound_factor([1.0, 2.0], decay=0.5)),
        (("decay", "nan"), lambda: diagnostics.bound_factor([1.0, 2.0], decay=[2.0, np.nan])),
        (("decay", "fast"), lambda: diagnostics.bound_factor([1.0, 2.0], decay="fast")),
        (("p must be", "0.5"), lambda: diagnostics.complexity(BANK, X, p=0.5)),
        (("p must be", "True"), lambda: diagnostics.complexity(BANK, X, p=True)),
        (("radius", "0"), lambda: diagnostics.complexity(BANK, X, radius=0)),
        (("radius", "inf"), lambda: diagnostics.complexity(BANK, X, radius=np.inf)),
        (("X is needed",), lambda: diagnostics.complexity(BANK)),
        (("max_rows", "1"), lambda: diagnostics.complexity(BANK, X, max_rows=1)),
        (("kernels must be", "int"), lambda: diagnostics.complexity(3, X)),
    ):
        fails(words, call)
