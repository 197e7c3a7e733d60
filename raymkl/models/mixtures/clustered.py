"""Clusters with a kernel machine each, learned together (clustering-induced kernel learning)."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ...engine import RayParams
from ...engine.programs.clustered.rows import noise_of
from ...engine.programs.clustered.settings import Learned, MachineSettings
from ...kernels.features.random_features import frequencies, log_probabilities, moved_origin
from ...optim.mixture.posterior import shares_of
from ..checks import check_labels, check_number
from ..dataset_answers import datasets_too
from ..runs.callbacks import a_run
from .base import BaseMixture

# Clusters in which a row has a smaller share than this have no say about it.
NO_SAY = 1e-9


class ClusteredMKLClassifier(BaseMixture, ClassifierMixin, BaseEstimator):
    """A classifier with a kernel machine for every cluster of a Dirichlet process mixture: the number of
    kernels grows with the data.

        V_k ~ Beta(1, concentration);   x | k ~ N(mu_k, Sigma_k);   coef_k ~ N(0, C I)
        p(y | x, k) proportional to exp(-loss_k(x, y))
        loss_k(x, y) = max(0, 1 + max_{m != y} s_km(x) - s_ky(x))
        s_km(x) = coef_km' phi_k(x)
        phi_k(x) = D^-1/2 [cos(w_kl'x), sin(w_kl'x)]_l,   w_kl = scales_k * noise_kl

    The kernel of cluster k is a Gaussian with a scale of its own for every column, exp(-1/2 sum_j scales_kj^2
    (x_j - z_j)^2), by random features. Clusters and machines climb one bound (`lower_bound_`): how well a
    machine classifies a row has a say in whose row it is. At the end machines are trained once more on
    memberships that know no labels, because new rows come without.

    Parameters
    ----------
    n_clusters : int
        The largest number of clusters; merges leave what the data ask for.
    C : float > 0
        Of the machines: 1/2 ||coef_k||^2 + C sum of losses (1 / lambda of the paper).
    concentration : float > 0
        Of the Dirichlet process; larger values expect more clusters.
    n_features : int
        D, frequencies of a cluster (2 D features).
    label_weight : float >= 0
        What losses and norms count in all that concerns clusters. 1 is the paper; 0 is the mixture alone,
        with machines trained after it.
    learn_scales : bool
        Learn `scales_` from the labels. It wins clearly where many columns are useless (accuracy 0.93 against
        0.69 with two useful columns of twelve), and may overfit sets of a few hundred rows: compare with
        False there.
    scale : float > 0
        Scales start at `scale * sqrt(2 / d) / spread of the column`.
    prior : dict or None
        As for `DirichletProcessMixture`.
    inference : {"variational", "gibbs"}
        As for `DirichletProcessMixture`. With "gibbs", `max_iter` counts sweeps.
    max_iter : int
        Iterations at most.
    tol : float
        Stop when the bound rises by less than this per unit of weight.
    epochs, final_epochs : int
        Passes over the rows when the machines are trained: in every iteration, and at the end.
    batch_size : int
        Rows of a cluster in one step of training.
    learning_rate : float
        First rate of the steps (Adam).
    engine, ray_params, verbose : object
        As for `MKLClassifier`.
    random_state : int, RandomState or None
        For the start of the clusters and the random features.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    scales_ : ndarray of shape (K, d)
        Learned scale of every column, in every cluster.
    noise_ : ndarray of shape (K, D, d)
        The fixed random directions.
    coef_ : ndarray of shape (K, n_classes, 2 D)
        Weights of the machines, cosines first; two rows for two classes.
    cluster_weights_ : ndarray of shape (K,)
        Expected shares of the clusters.
    means_ : ndarray of shape (K, d)
        Means of the clusters.
    covariances_ : ndarray of shape (K, d, d)
        Expected covariances of the clusters.
    weight_concentration_ : ndarray of shape (2, K)
        Posterior of the shares, as for `DirichletProcessMixture`.
    mean_precision_, degrees_of_freedom_ : ndarray of shape (K,)
        Posterior of means and covariances, as for `DirichletProcessMixture`.
    scatter_ : ndarray of shape (K, d, d)
        The same.
    prior_ : dict
        mean, mean_precision, degrees_of_freedom and scatter of the prior.
    labels_ : ndarray of shape (n,)
        The cluster with the largest share of each training row, before the final phase; labels y count.
    n_clusters_ : int
        How many of the clusters occur in `labels_`.
    lower_bound_ : float
        The bound that was climbed, before the final phase; labels y count.
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
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import ClusteredMKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ClusteredMKLClassifier(n_clusters=4, C=10.0, n_features=64, tol=1e-2, engine="local",
    ...     random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape
    (150, 3)

    References
    ----------
    Clustering induced kernel learning. Asian Conference on Machine Learning, 2018.
    """

    def __init__(
        self,
        n_clusters: int = 16,
        C: float = 1.0,
        concentration: float = 1.0,
        n_features: int = 384,
        label_weight: float = 1.0,
        learn_scales: bool = True,
        scale: float = 1.0,
        prior: dict | None = None,
        inference: str = "variational",
        max_iter: int = 20,
        epochs: int = 3,
        final_epochs: int = 20,
        batch_size: int = 128,
        learning_rate: float = 0.1,
        tol: float = 1e-3,
        engine: Any = "auto",
        ray_params: RayParams | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_clusters = n_clusters
        self.C = C
        self.concentration = concentration
        self.n_features = n_features
        self.label_weight = label_weight
        self.learn_scales = learn_scales
        self.scale = scale
        self.prior = prior
        self.inference = inference
        self.max_iter = max_iter
        self.epochs = epochs
        self.final_epochs = final_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.engine = engine
        self.ray_params = ray_params
        self.random_state = random_state
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        for name in ("n_features", "epochs", "batch_size"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_number("final_epochs", self.final_epochs, 0, whole=True)
        for name in ("C", "scale", "learning_rate"):
            check_number(name, getattr(self, name), 0.0, strict=True)
        check_number("label_weight", self.label_weight, 0.0)
        if not isinstance(self.learn_scales, bool | np.bool_):
            raise ValueError(f"learn_scales must be True or False, got {self.learn_scales!r}")

    # -- training ----------------------------------------------------------------------------------

    @a_run
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ClusteredMKLClassifier:
        """Learn clusters and their machines.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.
        y : array-like of shape (n,), or str
            Labels of any type, or the name of a column of a path or Dataset.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None weighs all alike.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._check_params()
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X, y = self._source_of(X, y)
        rows = self._read(X, reset=True)
        n = rows[None].shape[0]
        y = check_labels(y, n)
        weights = self._check_weights(sample_weight, n)
        classes = np.unique(y)
        empty = [label for label in classes.tolist() if not np.any(weights[y == label] > 0)]
        if empty:
            raise ValueError(
                f"sample_weight leaves no row of class {empty[0]!r}; every class needs one of positive weight"
            )
        self.classes_ = classes
        machines = MachineSettings(
            n_classes=len(classes),
            C=float(self.C),
            label_weight=float(self.label_weight),
            n_features=int(self.n_features),
            learn_scales=bool(self.learn_scales),
            scale=float(self.scale),
            epochs=int(self.epochs),
            final_epochs=int(self.final_epochs),
            batch_size=int(self.batch_size),
            learning_rate=float(self.learning_rate),
        )
        self._train(rows, np.searchsorted(classes, y), weights, machines)
        return self

    def _keep(self, learned: Learned) -> None:
        super()._keep(learned)
        machines, layout = learned.machines, learned.layout
        assert machines is not None and layout is not None  # a classifier asks for them
        d = self.means_.shape[1]
        self.scales_ = np.exp(machines.log_scales)
        self.noise_ = np.stack(
            [noise_of(layout.seed, int(origin), layout.n_features, d) for origin in machines.origins]
        )
        triples = zip(machines.coef, self.noise_, self.scales_, strict=True)
        self.coef_ = np.stack(
            [moved_origin(coef, noise, scales, layout.center) for coef, noise, scales in triples]
        )

    # -- prediction --------------------------------------------------------------------------------

    def _log_probabilities(self, X: Any) -> np.ndarray:
        """(n, n_classes) logs of the predictive mixture, sum_k membership_k p(y | x, k)."""
        check_is_fitted(self, "coef_")
        waves = [frequencies(noise, scales) for noise, scales in zip(self.noise_, self.scales_, strict=True)]
        found = []
        for rows, logs in self._logs(X):
            shares, total = shares_of(logs)
            parts = np.full((len(self.coef_), len(rows), len(self.classes_)), -np.inf)
            for k, wave in enumerate(waves):
                there = np.flatnonzero(shares[:, k] >= NO_SAY)
                if len(there):
                    own = log_probabilities(rows[there], wave, self.coef_[k])
                    parts[k, there] = (logs[there, k] - total[there])[:, None] + own
            found.append(np.logaddexp.reduce(parts, axis=0))
        values = np.concatenate(found)
        return values - np.logaddexp.reduce(values, axis=1)[:, None]

    @datasets_too
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes: p(y | x, k) of every cluster's machine, weighted by the row's
        membership.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.

        Returns
        -------
        probabilities : ndarray of shape (n, n_classes), or Dataset
            Rows sum to one. A Dataset is answered by a Dataset.
        """
        return np.exp(self._log_probabilities(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logs of `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.

        Returns
        -------
        logs : ndarray of shape (n, n_classes)
            Not positive.
        """
        return self._log_probabilities(X)

    @datasets_too
    def decision_function(self, X: Any) -> np.ndarray:
        """Logs of the probabilities, or log odds of two classes.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.

        Returns
        -------
        values : ndarray of shape (n,) or (n, n_classes)
            (n,) for two classes, the log odds of `classes_[1]`.
        """
        logs = self._log_probabilities(X)
        return logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs

    @datasets_too
    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.

        Returns
        -------
        labels : ndarray of shape (n,)
            Of the type of y.
        """
        check_is_fitted(self, "coef_")
        return self.classes_[self._log_probabilities(X).argmax(axis=1)]

    def cluster(self, X: Any) -> np.ndarray:
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
        check_is_fitted(self, "coef_")
        return np.concatenate([logs.argmax(axis=1) for _, logs in self._logs(X)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.
        y : array-like of shape (n,), or str
            Labels of any type, or the name of a column of a path or Dataset.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None weighs all alike.

        Returns
        -------
        accuracy : float
            Part of the rows whose class is right.
        """
        X, y = self._source_of(X, y)
        return super().score(X, y, sample_weight)
