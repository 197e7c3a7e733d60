"""The fitted sum: decision values, contributions and block norms are what their formulas say, gates and
ready-made matrices included.
"""

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl import (
    ConvexLocalizedMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLRegressor,
    diagnostics,
)
from raymkl.kernels import RBF, Linear, Polynomial, Precomputed, rbf
from raymkl.kernels.pairs.families import NO_GATE
from raymkl.models import expansion as module
from raymkl.models import expansion_sums
from raymkl.models.base import rows_and_gates
from raymkl.models.expansion import Expansion, SomeColumns
from tests.reference import gram, noisy_problem

BANK = [*rbf([0.1, 0.7]), Linear(), Polynomial(degree=2, coef0=1.0), RBF(gamma=0.2) * Linear()]


def naive(expansion, matrices, gates):
    """(n, H, E) parts by loops. matrices : (n, S, M) kernel values with the support vectors."""
    n, (n_heads, n_entries) = len(matrices), expansion.weights.shape
    parts = np.zeros((n, n_heads, n_entries))
    for i in range(n):
        for e in range(n_entries):
            gate = expansion.gate_of_entry[e]
            mine = 1.0 if gate == NO_GATE else gates[i, gate]
            for j in range(len(expansion.support)):
                theirs = 1.0 if gate == NO_GATE else expansion.support_gates[j, gate]
                value = mine * matrices[i, j, e % len(expansion.kernels)] * theirs
                parts[i, :, e] += expansion.weights[:, e] * expansion.coefficients[:, j] * value
    return parts


def random_expansion(seed, n_heads=2, rounds=2, n_support=7, gated=True, sparse_gates=False, bank=BANK):
    """An expansion of random numbers; some weights are zero, and of the gates some kernels have none."""
    rng = np.random.default_rng(seed)
    n_entries = rounds * len(bank)
    weights = rng.uniform(size=(n_heads, n_entries)) * (rng.uniform(size=(n_heads, n_entries)) < 0.8)
    gate_of_entry = rng.integers(-1, 3, size=n_entries).tolist() if gated else [NO_GATE] * n_entries
    gates = rng.uniform(size=(n_support, 3))
    if sparse_gates:
        gates *= rng.uniform(size=gates.shape) < 0.3
    return Expansion(
        kernels=bank,
        weights=weights,
        coefficients=rng.normal(size=(n_heads, n_support)),
        support=np.arange(n_support) * 2,
        support_rows={None: rng.normal(size=(n_support, 4))},
        n_train=2 * n_support,
        gate_of_entry=gate_of_entry,
        support_gates=gates if gated else None,
    )


def new_rows(seed, n=9, sparse_gates=False):
    rng = np.random.default_rng(seed + 1000)
    gates = rng.uniform(size=(n, 3))
    return rng.normal(size=(n, 4)), gates * (rng.uniform(size=gates.shape) < 0.3) if sparse_gates else gates


@pytest.mark.parametrize("sparse_gates", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("n_heads, rounds", [(1, 1), (2, 2), (3, 1), (1, 3)])
def test_sums_are_those_of_the_formula(n_heads, rounds, gated, sparse_gates):
    expansion = random_expansion(3, n_heads, rounds, gated=gated, sparse_gates=sparse_gates)
    Z, gates = new_rows(3, sparse_gates=sparse_gates)
    gates = gates if gated else None
    parts = naive(expansion, gram(BANK, Z, expansion.support_rows[None]), gates)
    np.testing.assert_allclose(expansion.entry_contributions({None: Z}, gates), parts, atol=1e-11)
    np.testing.assert_allclose(expansion.decision({None: Z}, gates), parts.sum(axis=2), atol=1e-10)
    of_kernels = parts.reshape(len(Z), n_heads, rounds, len(BANK)).sum(axis=2)
    np.testing.assert_allclose(expansion.contributions({None: Z}, gates), of_kernels, atol=1e-11)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 12),
    n_heads=st.integers(1, 3),
    rounds=st.integers(1, 3),
    sparse=st.booleans(),
)
def test_contributions_add_up_to_the_decision(seed, n, n_heads, rounds, sparse):
    expansion = random_expansion(seed, n_heads, rounds, sparse_gates=sparse)
    Z, gates = new_rows(seed, n, sparse)
    parts = expansion.contributions({None: Z}, gates)
    assert parts.shape == (n, n_heads, len(BANK))
    np.testing.assert_allclose(parts.sum(axis=2), expansion.decision({None: Z}, gates), atol=1e-10)


@pytest.mark.parametrize("gated", [False, True])
def test_block_norms_are_quadratic_forms(gated):
    """||w||^2 = theta^2 a' G K G a times the factor of normalisation, which the weights of the entries hold
    beside theta.
    """
    expansion = random_expansion(5, n_heads=2, rounds=2, gated=gated)
    factors = np.random.default_rng(6).uniform(0.5, 2.0, size=expansion.weights.shape)
    theta = expansion.weights / factors
    K = gram(BANK, expansion.support_rows[None])
    expected = np.zeros_like(theta)
    for h, a in enumerate(expansion.coefficients):
        for e, gate in enumerate(expansion.gate_of_entry):
            g = np.ones(len(a)) if gate == NO_GATE else expansion.support_gates[:, gate]
            expected[h, e] = theta[h, e] * np.sqrt(factors[h, e] * (a * g) @ K[:, :, e % len(BANK)] @ (a * g))
    found = expansion.block_norms(theta.reshape(2, 2, len(BANK)))
    np.testing.assert_allclose(found, expected.reshape(2, 2, len(BANK)), atol=1e-9)


def test_block_norms_of_weights_that_heads_share():
    theta = np.random.default_rng(0).uniform(0.1, 1.0, size=len(BANK))
    expansion = replace(random_expansion(5, n_heads=3, rounds=1, gated=False), weights=np.tile(theta, (3, 1)))
    K = gram(BANK, expansion.support_rows[None])
    forms = np.einsum("hi,ijm,hj->m", expansion.coefficients, K, expansion.coefficients)
    np.testing.assert_allclose(expansion.block_norms(theta), theta * np.sqrt(forms), rtol=1e-9)


def test_ready_made_matrices_and_vectors():
    bank = [Precomputed(view="m", index=1), RBF(gamma=0.3, view="x"), Precomputed(view="m")]
    own = random_expansion(8, gated=True, bank=bank)
    vectors = own.support_rows[None]
    expansion = replace(own, support_rows={"x": vectors, "m": np.empty((7, 0))}, stack_depths={"m": 2})
    Z, gates = new_rows(8)
    stack = np.random.default_rng(8).normal(size=(9, 14, 2))
    matrices = np.stack([stack[:, ::2, 1], RBF(gamma=0.3)(Z, vectors), stack[:, ::2, 0]], axis=2)
    parts = naive(expansion, matrices, gates)
    for copy in (True, False):
        rows = expansion.with_support_columns({"x": Z, "m": stack}, copy)
        assert (
            isinstance(rows["m"], np.ndarray if copy else SomeColumns)
            and rows["m"].shape == (9, 7, 2)
            and rows["x"] is Z
        )
        np.testing.assert_allclose(expansion.decision(rows, gates), parts.sum(axis=2), atol=1e-11)
    np.testing.assert_allclose(
        expansion.entry_contributions({"x": Z, "m": stack[:, ::2]}, gates), parts, atol=1e-11
    )
    only = stack[:, ::2]
    assert expansion.with_support_columns({"x": Z, "m": only})["m"] is only
    for wrong in (stack[:, :9], stack[:, :, :1]):
        with pytest.raises(ValueError, match=r"\(n_test, 14, 2\), or \(n_test, 7, 2\)"):
            expansion.with_support_columns({"x": Z, "m": wrong})


def test_without_support_vectors_or_weights_all_is_zero():
    expansion = random_expansion(1)
    Z, gates = new_rows(1)
    none = replace(
        expansion,
        coefficients=np.empty((2, 0)),
        support=np.empty(0, int),
        support_rows={None: np.empty((0, 4))},
        support_gates=np.empty((0, 3)),
    )
    for empty in (none, replace(expansion, weights=np.zeros_like(expansion.weights))):
        np.testing.assert_array_equal(empty.decision({None: Z}, gates), np.zeros((9, 2)))
        np.testing.assert_array_equal(empty.contributions({None: Z}, gates), np.zeros((9, 2, len(BANK))))
        np.testing.assert_array_equal(
            empty.block_norms(np.ones((2, 2, len(BANK)))), np.zeros((2, 2, len(BANK)))
        )


@pytest.mark.parametrize("cores", [1, 2])
def test_blocks_and_cores_change_nothing(monkeypatch, cores):
    expansion = random_expansion(2, sparse_gates=True)
    Z, gates = new_rows(2, n=40, sparse_gates=True)
    whole = [method({None: Z}, gates) for method in (expansion.decision, expansion.contributions)]
    monkeypatch.setattr(module, "BLOCK_BYTES", 8 * len(expansion.support) * 3)  # blocks of three rows
    monkeypatch.setattr(expansion_sums, "usable_cpus", lambda: cores)
    for method, values in zip((expansion.decision, expansion.contributions), whole, strict=True):
        np.testing.assert_allclose(method({None: Z}, gates), values, atol=1e-12)


def test_tables_agree_with_formulas(monkeypatch):
    expansion = random_expansion(4)
    Z, gates = new_rows(4)
    values = expansion.decision({None: Z}, gates)
    monkeypatch.setattr(module, "WORTH_A_TABLE", 0)
    np.testing.assert_allclose(expansion.decision({None: Z}, gates), values, atol=1e-6 * np.abs(values).max())


# -- what estimators hold --------------------------------------------------------------------------

X, Y = noisy_problem(60, seed=31)
T, _ = noisy_problem(20, seed=32)
Y3 = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.5])]
LOCALIZED = {"n_init": 1, "max_iter": 3, "tol": 1e-2, "random_state": 0}
MODELS = {
    "two classes": lambda: MKLClassifier(kernels=BANK, engine="local").fit(X, Y),
    "three classes": lambda: MKLClassifier(kernels=BANK, normalize="spherical", engine="local").fit(X, Y3),
    "shared weights": lambda: MKLClassifier(
        kernels=BANK, shared_weights=True, normalize="trace", engine="local"
    ).fit(X, Y3),
    "sparse": lambda: MKLClassifier(kernels=BANK, engine="local").fit(sp.csr_matrix(X), Y),
    "numbers": lambda: MKLRegressor(kernels=BANK, engine="local").fit(X, 100.0 + X[:, 0]),
    "clusters": lambda: ConvexLocalizedMKLClassifier(
        kernels=BANK, n_clusters=2, normalize="spherical", random_state=0, engine="local"
    ).fit(X, Y3),
    "gates": lambda: LocalizedMKLClassifier(
        kernels=BANK, engine="local", normalize="spherical", **LOCALIZED
    ).fit(X, Y3),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    return MODELS[request.param]()


@pytest.mark.filterwarnings("ignore")
def test_estimators_predict_from_their_expansion(fitted):
    expansion, examples = (
        fitted.expansion_,
        sp.csr_matrix(T) if sp.issparse(fitted.expansion_.support_rows[None]) else T,
    )
    rows, gates = rows_and_gates(fitted, examples)
    values = expansion.decision(rows, gates) + fitted.intercept_
    known = (
        fitted.decision_function(examples)
        if hasattr(fitted, "decision_function")
        else fitted.predict(examples)
    )
    np.testing.assert_array_equal(values[:, 0] if values.shape[1] == 1 else values, known)
    np.testing.assert_array_equal(
        expansion.contributions(rows, gates).reshape(fitted.contributions(examples).shape),
        fitted.contributions(examples),
    )
    np.testing.assert_array_equal(
        expansion.block_norms(fitted.kernel_weights_), diagnostics.block_norms(fitted)
    )
    support = expansion.support_rows[None]
    parts = naive(expansion, gram(BANK, T, support.toarray() if sp.issparse(support) else support), gates)
    np.testing.assert_allclose(values - fitted.intercept_, parts.sum(axis=2), atol=1e-7)


def test_it_holds_what_the_public_attributes_say(fitted):
    expansion = fitted.expansion_
    assert (
        expansion.kernels is fitted.kernels_
        and expansion.coefficients is fitted.dual_coef_
        and expansion.support is fitted.support_
    )
    assert expansion.n_train == 60 and expansion.weights.shape == (
        len(fitted.dual_coef_),
        len(expansion.gate_of_entry),
    )
    kept = expansion.support_rows[None]
    np.testing.assert_array_equal(kept.toarray() if sp.issparse(kept) else kept, X[fitted.support_])
    assert len(fields(expansion)) <= 12 and len(repr(expansion)) < 120
    with pytest.raises(AttributeError):
        expansion.n_train = 3


def test_pickles_hold_support_vectors_and_no_other_rows(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert again.expansion_.coefficients is again.dual_coef_  # held once
    examples = sp.csr_matrix(T) if sp.issparse(fitted.expansion_.support_rows[None]) else T
    np.testing.assert_array_equal(again.contributions(examples), fitted.contributions(examples))


def test_a_pickle_does_not_grow_with_rows_that_are_no_support_vectors():
    """Easy data: the rows alone would take 800 kB."""
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 2
    model = MKLClassifier(kernels=[Linear()], engine="local").fit(
        rng.normal(size=(2000, 50)) + 10.0 * y[:, None], y
    )
    assert (
        len(model.support_) < 60 and len(pickle.dumps(model.expansion_)) < 8 * 52 * len(model.support_) + 5000
    )
    assert len(pickle.dumps(model)) < 80_000
