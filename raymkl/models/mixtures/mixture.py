"""A Dirichlet process mixture of Gaussians, by one bound that is climbed, reported and can be checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin

from ...engine import RayParams
from ...optim.mixture.posterior import shares_of
from ..dataset_answers import datasets_too
from ..runs.callbacks import a_run
from .base import BaseMixture


class DirichletProcessMixture(BaseMixture, ClusterMixin, DensityMixin, BaseEstimator):
    """Clusters of rows, as many as the data ask for: a Dirichlet process mixture of Gaussians.

        V_k ~ Beta(1, concentration), V_K = 1;   pi_k = V_k prod_{j<k} (1 - V_j)
        Sigma_k ~ IW(nu0, S0),   mu_k ~ N(m0, Sigma_k / tau0)

    Variational inference climbs a lower bound of the log likelihood (`lower_bound_`; `history_` shows that no
    step lowers it). Clusters are joined wherever that raises the bound, which is what makes their number
    right.

    Parameters
    ----------
    n_clusters : int
        The largest number of clusters (the truncation K); merges leave what the data ask for.
    concentration : float > 0
        Of the Dirichlet process; larger values expect more clusters.
    prior : dict or None
        Any of `mean` (d,) (default: the mean of the rows), `mean_precision` (0.1), `degrees_of_freedom` (d +
        2), and `scatter` (d, d) or `spread` (0.1: the scatter is `spread` times the variances of the columns,
        so that units change nothing).
    inference : {"variational", "gibbs"}
        Collapsed Gibbs sampling visits rows one after the other, in one process; at most 5,000 of them.
        `max_iter` counts its sweeps.
    max_iter : int
        Iterations at most, of five passes over the rows each.
    tol : float
        Stop when the bound rises by less than this per unit of weight.
    engine, ray_params, verbose : object
        As for `MKLClassifier`.
    random_state : int, RandomState or None
        For the start of the clusters, and for Gibbs sampling.

    Attributes
    ----------
    cluster_weights_ : ndarray of shape (K,)
        Expected shares of the clusters; K is what the merges have left.
    means_ : ndarray of shape (K, d)
        Means of the posteriors.
    covariances_ : ndarray of shape (K, d, d)
        Expected covariances.
    weight_concentration_ : ndarray of shape (2, K)
        Parameters a and b of the sticks V_k (their posterior is Beta(a, b)).
    mean_precision_, degrees_of_freedom_ : ndarray of shape (K,)
        tau and nu of the posteriors of means and covariances.
    scatter_ : ndarray of shape (K, d, d)
        S of the posteriors of covariances.
    prior_ : dict
        mean, mean_precision, degrees_of_freedom and scatter of the prior.
    labels_ : ndarray of shape (n,)
        The cluster with the largest share of each training row.
    n_clusters_ : int
        How many of the clusters occur in `labels_`.
    lower_bound_ : float
        The bound that was climbed.
    history_ : list of dict
        One per iteration: iteration, phase, seconds, bound, clusters.
    n_iter_ : int
        Iterations, or sweeps.
    converged_ : bool
        Whether the bound rose by at most `tol` per row in the end.
    samples_ : ndarray of shape (sweeps, n)
        Labels of all sweeps, with inference="gibbs".
    engine_used_ : str
        "local" or "ray".
    shard_failures_ : int
        Shards that were lost and replaced.
    n_features_in_ : int
        Columns d of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, where X has any.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import DirichletProcessMixture
    >>> random = np.random.default_rng(0)
    >>> X = np.vstack([random.normal(center, 1.0, size=(100, 2)) for center in (-6.0, 0.0, 6.0)])
    >>> model = DirichletProcessMixture(engine="local", random_state=0).fit(X)
    >>> model.n_clusters_
    3

    References
    ----------
    Blei, Jordan: Variational inference for Dirichlet process mixtures. Bayesian Analysis 1, 2006.

    Neal: Markov chain sampling methods for Dirichlet process mixture models. Journal of Computational and
    Graphical Statistics 9, 2000.
    """

    def __init__(
        self,
        n_clusters: int = 16,
        concentration: float = 1.0,
        prior: dict | None = None,
        inference: str = "variational",
        max_iter: int = 200,
        tol: float = 1e-5,
        engine: Any = "auto",
        ray_params: RayParams | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_clusters = n_clusters
        self.concentration = concentration
        self.prior = prior
        self.inference = inference
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.ray_params = ray_params
        self.random_state = random_state
        self.verbose = verbose

    @a_run
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DirichletProcessMixture:
        """Find clusters.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.
        y : str or None
            Not used, but a name of a column of a path or Dataset, which is then not read.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None weighs all alike.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._check_params()
        X, _ = self._source_of(X, y if isinstance(y, str) else None)
        rows = self._read(X, reset=True)
        self._train(rows, None, self._check_weights(sample_weight, rows[None].shape[0]), None)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """Find clusters and say which rows are in which.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.
        y : str or None
            As for `fit`.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None weighs all alike.

        Returns
        -------
        labels : ndarray of shape (n,)
            The attribute `labels_`.
        """
        return self.fit(X, y, sample_weight).labels_

    @datasets_too
    def predict(self, X: Any) -> np.ndarray:
        """The cluster with the largest membership of each row.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.

        Returns
        -------
        clusters : ndarray of shape (n,)
            Whole numbers from 0 on.
        """
        return np.concatenate([logs.argmax(axis=1) for _, logs in self._logs(X)])

    def score_samples(self, X: Any) -> np.ndarray:
        """Logs of the predictive density of rows.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.

        Returns
        -------
        logs : ndarray of shape (n,)
            The larger, the more usual.
        """
        return np.concatenate([shares_of(logs)[1] for _, logs in self._logs(X)])

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.
        y : None
            Not used.

        Returns
        -------
        mean : float
            Of the logs of the density.
        """
        return float(self.score_samples(X).mean())
