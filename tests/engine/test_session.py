"""Sessions: shards that stand while several fits use them, and rows that stay there with their pair
statistics.
"""

import gc
import pickle
import threading
import weakref
from copy import copy, deepcopy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from raymkl import ConvexLocalizedMKLClassifier, MKLClassifier, MKLRegressor, RayParams, Session, kernels
from raymkl.search import MKLSearchCV
from tests.reference import noisy_problem

N = 240
WIDE = np.random.default_rng(5).normal(size=(8, 80))
X, Y = noisy_problem(N, seed=31)
X80 = X @ WIDE[: X.shape[1]]  # more columns than are computed anew where they are wanted
BANK = kernels.rbf([0.001, 0.01, 0.1])
PARAMS = RayParams(num_shards=2, cpus_per_shard=0.25, timeout_s=60.0)


def model(engine, C=1.0, **more):
    return MKLClassifier(kernels=BANK, C=C, engine=engine, dtype="float32", **more)


def computed(fitted):
    return fitted.history_[-1]["columns_computed"]


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def session(request):
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    with Session(request.param, PARAMS) as found:
        yield found


def same(fitted, C=1.0, rows=X80):
    expected = model("local", C, ray_params=RayParams(num_shards=2)).fit(rows, Y)
    np.testing.assert_allclose(fitted.decision_function(rows), expected.decision_function(rows), atol=2e-2)
    return True


def test_fits_in_a_session_are_the_local_ones(session):
    assert all(same(model(session, C).fit(X80, Y), C) for C in (1.0, 0.1))


def test_rows_that_were_put_are_compared_once(session):
    rows = session.put(X80)
    one, other, again = (model(session, C).fit(rows, Y) for C in (1.0, 0.1, 1.0))
    assert computed(one) > 0 and computed(other) < computed(one) and computed(again) == 0
    np.testing.assert_array_equal(again.decision_function(X80), one.decision_function(X80))
    assert same(one) and same(other, 0.1)


def test_rows_that_were_not_put_are_compared_in_every_fit(session):
    assert computed(model(session).fit(X80, Y)) == computed(model(session).fit(X80, Y)) > 0


def test_few_columns_are_compared_anew_where_that_is_quicker(session):
    rows = session.put(X)
    fits = [MKLClassifier(kernels=BANK, engine=session, dtype="float32").fit(rows, Y) for _ in range(2)]
    assert computed(fits[1]) == computed(fits[0]) > 0


def test_other_kernels_over_the_same_rows(session):
    rows = session.put({"a": X80, "b": X80[:, ::2]})
    first = MKLClassifier(kernels=[kernels.RBF(0.01, view="a")], engine=session, dtype="float32").fit(rows, Y)
    second = MKLClassifier(
        kernels=[kernels.RBF(0.01, view="a"), kernels.Linear(view="b")], engine=session, dtype="float32"
    ).fit(rows, Y)
    third = MKLClassifier(kernels=[kernels.RBF(0.5, view="a")], engine=session, dtype="float32").fit(rows, Y)
    assert computed(first) > 0 and computed(second) > 0
    assert computed(third) <= N and third.converged_ and second.converged_


def test_caches_of_put_rows_obey_the_budget():
    """What caches over three sets of rows would take together is more than is allowed: the oldest ones go."""
    budget = 300_000
    with Session("local", RayParams(num_shards=2, memory_per_shard=budget)) as session:
        rows = [session.put(X80), session.put(X80[:, ::-1]), session.put(X80[:, 1:])]
        for turn in (0, 1, 2, 0, 0):
            fitted = model(session).fit(rows[turn], Y)
            sizes = [entry.size for entry in session._standing.idle.values()]
            assert 0 < sum(sizes) <= budget
            assert all(len(kept) == len(sizes) for kept in session._kept.values())
        assert len(sizes) == 2 and computed(fitted) == 0
    with Session("local", RayParams(num_shards=2)) as session:
        rows = [session.put(X80), session.put(X80[:, ::-1])]
        assert [computed(model(session).fit(rows[turn], Y)) == 0 for turn in (0, 1, 0, 1)] == [
            False,
            False,
            True,
            True,
        ]


def test_caches_that_a_shard_has_lost_are_let_go_everywhere():
    """A shard that was replaced has no caches: the run starts with empty ones, and the other shards forget
    theirs.
    """
    with Session("local", RayParams(num_shards=2)) as session:
        rows = session.put(X80)
        first = model(session).fit(rows, Y)
        session._kept[1].clear()
        again = model(session).fit(rows, Y)
        assert computed(again) == computed(first) > 0
        assert computed(model(session).fit(rows, Y)) == 0
        assert [len(kept) for kept in session._kept.values()] == [1, 1] == 2 * [len(session._standing.idle)]


def test_regression_and_localized_models(session):
    rows = session.put(X80)
    regressor = MKLRegressor(kernels=BANK, engine=session).fit(rows, X[:, 0])
    expected = MKLRegressor(kernels=BANK, engine="local").fit(X80, X[:, 0])
    np.testing.assert_allclose(regressor.predict(X80), expected.predict(rows), atol=2e-2)
    convex = ConvexLocalizedMKLClassifier(kernels=BANK, n_clusters=2, engine=session, random_state=0).fit(
        rows, Y
    )
    assert convex.membership(rows).shape == (N, 2)


def test_searches(session):
    rows = session.put(X80)
    search = MKLSearchCV(model(session), {"C": [0.1, 1.0]}, cv=3).fit(rows, Y)
    expected = MKLSearchCV(model("local"), {"C": [0.1, 1.0]}, cv=3).fit(X80, Y)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=0.02
    )
    grid = GridSearchCV(model(session), {"C": [0.1, 1.0]}, cv=2).fit(rows, Y)
    assert grid.best_estimator_.engine is session


def test_several_fits_at_once(session):
    rows, found = session.put(X80), {}

    def train(C):
        found[C] = model(session, C).fit(rows, Y)

    threads = [threading.Thread(target=train, args=(C,)) for C in (0.1, 1.0, 10.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(found[C], C) for C in (0.1, 1.0))
    assert computed(model(session, 1.0).fit(rows, Y)) >= 0


def test_a_fit_that_fails_leaves_a_session_that_works(session):
    rows = session.put(X80)
    model(session).fit(rows, Y)
    with pytest.raises(ValueError):
        MKLClassifier(kernels=[BrokenKernel()], engine=session).fit(rows, Y)
    assert same(model(session).fit(rows, Y))


class BrokenKernel(kernels.Custom):
    def __init__(self):
        super().__init__(lambda a, b: -(a @ b.T))


def test_clone_keeps_the_session_and_pickle_its_kind(session):
    assert clone(model(session)).engine is session
    assert copy(session) is session and deepcopy(session) is session
    fitted = model(session).fit(session.put(X80), Y)
    back = pickle.loads(pickle.dumps(fitted))
    assert back.engine == session.kind
    np.testing.assert_array_equal(back.decision_function(X80), fitted.decision_function(X80))


def test_put_rows_look_like_rows(session):
    rows = session.put(X80)
    assert len(rows) == N and rows.shape == X80.shape
    np.testing.assert_array_equal(rows[np.array([3, 1])], X80[[3, 1]])
    views = session.put({"a": X80, "b": list("acgt" * (N // 4))})
    assert len(views) == N and views[np.array([2])]["b"] == ["g"]
    assert "session" in repr(rows).lower() and session.kind in repr(session)


def test_rows_bring_their_session_along(session):
    rows = session.put(X80)
    fitted = model("auto").fit(rows, Y)
    assert fitted.engine_used_ == session.kind and computed(model("auto").fit(rows, Y)) == 0


# -- bad input -------------------------------------------------------------------------------------


def test_closed_sessions_and_rows_of_others():
    with Session("local") as one, Session("local") as two:
        rows = one.put(X80)
        with pytest.raises(ValueError, match="another session"):
            model(two).fit(rows, Y)
        with pytest.raises(ValueError, match="engine='ray' runs elsewhere"):
            model("ray").fit(rows, Y)
        with pytest.raises(ValueError, match="put into a session already"):
            one.put(rows)
        fitted = model(one).fit(rows, Y)
    for engine in (one, "local", "auto"):
        with pytest.raises(RuntimeError, match="closed"):
            model(engine).fit(rows, Y)
    with pytest.raises(RuntimeError, match="closed"):
        fitted.predict(rows)
    with pytest.raises(RuntimeError, match="closed"):
        model(one).fit(X80, Y)
    with pytest.raises(RuntimeError, match="closed"):
        one.put(X80)
    with pytest.raises(RuntimeError, match="closed"), one:
        pass
    assert "closed" in repr(one)
    one.close()  # once more does no harm
    fitted.predict(X80)


@pytest.mark.parametrize("engine", [42, None, "cluster", Session])
def test_engines_of_another_kind(engine):
    with pytest.raises(ValueError, match="engine must be one of 'auto', 'local', 'ray', or a Session"):
        model(engine).fit(X80, Y)


def test_sessions_of_another_kind():
    with pytest.raises(ValueError, match="engine of a Session must be one of 'local', 'ray', got 'auto'"):
        Session("auto")
    with pytest.raises(ValueError, match="params of a Session must be a RayParams"):
        Session("local", {"num_shards": 2})


# -- what is left ----------------------------------------------------------------------------------


def test_forgotten_rows_are_gone():
    with Session("local") as session:
        rows = session.put(X80)
        model(session).fit(rows, Y)
        home = weakref.ref(rows.home)
        assert all(len(kept) == 1 for kept in session._kept.values())
        del rows
        gc.collect()
        assert home() is None and not any(session._kept.values()) and not session._standing.idle
