"""DirichletProcessMixture: its bound, clusters, densities, priors, weights, sampling and containers."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score as nmi

import raymkl
from raymkl import DirichletProcessMixture, Session
from tests.optim.mixture import reference as slow


def blobs(n, seed=0, K=4, d=2, apart=7.0):
    random = np.random.default_rng(seed)
    centers, roots = apart * random.normal(size=(K, d)), np.eye(d) + 0.3 * random.normal(size=(K, d, d))
    z = random.integers(K, size=n)
    return centers[z] + np.einsum("nij,nj->ni", roots[z], random.normal(size=(n, d))), z


X, Z = blobs(240)
T, _ = blobs(50, seed=3)


def mixture(**more):
    return DirichletProcessMixture(**{"engine": "local", "random_state": 0, **more})


MODEL = mixture().fit(X)


@pytest.mark.parametrize(
    "more",
    [{}, {"concentration": 0.01}, {"concentration": 30.0}, {"n_clusters": 1}, {"prior": {"spread": 1.0}}],
)
def test_the_bound_is_that_of_the_public_arrays(more):
    model = mixture(**more).fit(X[:80])
    assert slow.bound(model, X[:80]) == pytest.approx(model.lower_bound_, abs=1e-4)
    assert model.history_[-1]["bound"] == pytest.approx(model.lower_bound_, abs=1e-8)


@pytest.mark.parametrize("d, K", [(1, 3), (2, 4), (5, 6)])
def test_groups_far_apart_are_found(d, K):
    rows, groups = blobs(60 * K, seed=K, K=K, d=d, apart=25.0)
    model = mixture().fit(rows)
    assert model.n_clusters_ == len(model.means_) == len(model.cluster_weights_) == K
    assert nmi(groups, model.labels_) > 0.99
    assert np.all(np.diff(model.cluster_weights_) <= 0)


def test_membership_density_and_clusters_of_new_rows():
    arrays = list(
        zip(MODEL.means_, MODEL.mean_precision_, MODEL.degrees_of_freedom_, MODEL.scatter_, strict=True)
    )
    logs = np.array([[slow.student(x, *parts) for parts in arrays] for x in T]) + np.log(
        slow.weights(MODEL.weight_concentration_.copy())
    )
    total = np.logaddexp.reduce(logs, axis=1)
    np.testing.assert_allclose(MODEL.membership(T), np.exp(logs - total[:, None]), atol=1e-9)
    np.testing.assert_allclose(MODEL.score_samples(T), total, rtol=1e-9)
    assert MODEL.score(T) == pytest.approx(total.mean())
    np.testing.assert_array_equal(MODEL.predict(T), logs.argmax(axis=1))
    far = MODEL.score_samples([[1e8, -1e8]])
    assert np.isfinite(far).all() and np.isfinite(MODEL.membership([[1e8, -1e8]])).all()


def test_labels_are_the_largest_shares():
    own = [slow.row_logs(MODEL, x).argmax() for x in X]
    np.testing.assert_array_equal(MODEL.labels_, own)
    np.testing.assert_array_equal(mixture().fit_predict(X), own)


def test_covariances_are_posterior_means_where_there_is_one():
    freedom = MODEL.degrees_of_freedom_ - 3
    np.testing.assert_allclose(MODEL.covariances_, MODEL.scatter_ / freedom[:, None, None])
    few = mixture(prior={"degrees_of_freedom": 1.5}, n_clusters=2).fit(X[:1])
    np.testing.assert_allclose(few.covariances_, few.scatter_ / few.degrees_of_freedom_[:, None, None])


def test_units_and_places_of_columns_do_not_matter():
    moved = mixture().fit(X * [1e5, 1e-4] + [1e7, -3.0])
    assert moved.means_.shape == MODEL.means_.shape
    np.testing.assert_array_equal(moved.labels_, MODEL.labels_)


def test_a_row_of_weight_zero_is_no_row_and_one_of_weight_two_is_two():
    weight = np.r_[np.zeros(40), np.full(50, 2.0), np.ones(150)]
    one, two = mixture().fit(X, sample_weight=weight), mixture().fit(X[np.r_[40:240, 40:90]])
    assert one.lower_bound_ == pytest.approx(two.lower_bound_, abs=0.02 * 250)
    assert slow.bound(one, X, row_weights=weight) == pytest.approx(one.lower_bound_, abs=1e-4)
    gone, cut = mixture().fit(X, sample_weight=weight > 0), mixture().fit(X[40:])
    np.testing.assert_allclose(gone.means_, cut.means_, atol=1e-9)
    np.testing.assert_array_equal(gone.labels_[40:], cut.labels_)


def test_every_part_of_a_prior():
    given = {
        "mean": [1.0, -1.0],
        "mean_precision": 0.5,
        "degrees_of_freedom": 7.0,
        "scatter": [[2.0, 0.5], [0.5, 1.0]],
    }
    model = mixture(prior=given).fit(X[:60])
    for name, value in given.items():
        np.testing.assert_array_equal(model.prior_[name], value)
    assert slow.bound(model, X[:60]) == pytest.approx(model.lower_bound_, abs=1e-4)


def test_stopping_short_is_a_warning_that_says_the_last_rise():
    with pytest.warns(ConvergenceWarning, match=r"raised the bound by [\d.e+-]+ per row"):
        model = mixture(max_iter=2, tol=0.0).fit(X)
    assert model.n_iter_ == 2 and not model.converged_


def test_gibbs_sampling_keeps_all_sweeps():
    model = mixture(inference="gibbs", max_iter=25).fit(X)
    assert model.samples_.shape == (25, 240) and model.converged_
    assert nmi(Z, model.samples_[-1]) > 0.9
    assert slow.bound(model, X) == pytest.approx(model.lower_bound_, abs=1e-4)
    counts = np.bincount(model.samples_[-1])
    np.testing.assert_allclose(model.weight_concentration_[0], 1 + counts)
    assert not hasattr(model.set_params(inference="variational").fit(X), "samples_")


def test_containers(tmp_path):
    table = pd.DataFrame(X, columns=["u", "v"])
    table.assign(group=Z).to_parquet(tmp_path / "rows.parquet", row_group_size=50)
    for rows in (table, pa.Table.from_pandas(table), X.tolist(), np.asfortranarray(X)):
        np.testing.assert_array_equal(mixture().fit(rows).labels_, MODEL.labels_)
    path = str(tmp_path / "rows.parquet")
    model = mixture().fit(path, "group")
    np.testing.assert_array_equal(model.labels_, MODEL.labels_)
    np.testing.assert_allclose(model.membership(path), MODEL.membership(X), atol=1e-12)
    with Session("local") as session:
        np.testing.assert_array_equal(mixture(engine=session).fit(session.put(X)).labels_, MODEL.labels_)


def test_files_pickles_and_clones(tmp_path):
    MODEL.save(tmp_path / "m.raymkl")
    for other in (raymkl.load(tmp_path / "m.raymkl"), pickle.loads(pickle.dumps(MODEL))):
        np.testing.assert_array_equal(other.membership(T), MODEL.membership(T))
        assert other.lower_bound_ == MODEL.lower_bound_ and other.history_ == MODEL.history_
    assert clone(MODEL).get_params() == MODEL.get_params()


def test_files_whose_parts_do_not_fit_are_refused(tmp_path):
    for name, wrong in (
        ("scatter_", -MODEL.scatter_),
        ("means_", MODEL.means_[:, :1]),
        ("prior_", {}),
        ("mean_precision_", None),
    ):
        broken = pickle.loads(pickle.dumps(MODEL))
        setattr(broken, name, wrong)
        broken.save(tmp_path / "broken.raymkl")
        with pytest.raises(ValueError, match=r"do not fit together|not written by raymkl"):
            raymkl.load(tmp_path / "broken.raymkl")


def test_repeated_and_few_rows():
    same = mixture().fit(np.tile(X[:1], (30, 1)))
    assert same.n_clusters_ == 1 and np.isfinite(same.lower_bound_)
    few = mixture(n_clusters=10).fit(X[:4])
    assert few.n_clusters_ <= 4
    flat = mixture().fit(np.c_[X, np.full(len(X), 7.0), X[:, :1]])
    assert np.isfinite(flat.score_samples(np.c_[T, np.full(len(T), 8.0), T[:, :1]])).all()


@pytest.mark.parametrize(
    "more, word",
    [
        ({"prior": {"mean": "here"}}, "prior"),
        ({"prior": {"mean": [0.0, np.nan]}}, "prior"),
        ({"prior": {"scatter": [[1.0, 2.0], [0.0, 1.0]]}}, "symmetric"),
        ({"prior": {"scatter": np.eye(2), "spread": 0.1}}, "both"),
        ({"prior": {"spread": 0.0}}, "spread"),
        ({"prior": {"mean_precision": "much"}}, "mean_precision"),
        ({"ray_params": 3}, "ray_params"),
        ({"n_clusters": True}, "n_clusters"),
    ],
)
def test_bad_parameters_are_named(more, word):
    with pytest.raises((ValueError, TypeError), match=word):
        mixture(**more).fit(X)


@pytest.mark.ray
def test_a_cluster_gives_the_same_mixture(ray_session):
    there = mixture(engine=ray_session).fit(X)
    np.testing.assert_allclose(there.means_, MODEL.means_, atol=1e-8)
    assert there.engine_used_ == "ray" and there.shard_failures_ == 0


def test_a_report_says_what_shows_a_mixture_instead():
    with pytest.raises(TypeError, match="ClustersDisplay"):
        raymkl.report(MODEL)
