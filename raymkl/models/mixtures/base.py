"""What both mixtures share: reading rows of numbers, checking parameters and priors, handing a program to the
engine, memberships.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ...data.progress import progress_of
from ...data.views import is_sparse, is_views
from ...engine import Problem
from ...engine.placed import PlacedRows
from ...engine.programs.clustered.program import MixtureProgram
from ...engine.programs.clustered.settings import Learned, MachineSettings, MixtureSettings
from ...engine.session import SessionRows
from ...kernels.formulas import Linear
from ...optim.mixture.posterior import Posterior, expected_weights, predictive, shares_of
from .. import reading, sources
from ..checks import check_number, check_place, given_weights
from ..files.saving import Saves
from ..missing.presence import refuse
from ..runs.callbacks import WithCallbacks, run_of, stop_was_asked

INFERENCES = ("variational", "gibbs")
PRIOR_PARTS = ("mean", "mean_precision", "degrees_of_freedom", "scatter", "spread")
# Gibbs sampling visits rows one after the other, in one process.
MOST_GIBBS_ROWS = 5_000
# Numbers of a tile of rows by clusters and columns, when predicting.
TILE = 2**20


class BaseMixture(WithCallbacks, Saves):
    """Base of the mixtures; see `DirichletProcessMixture` for the parameters and attributes."""

    # -- checks ------------------------------------------------------------------------------------

    def _check_params(self) -> None:
        """Raise ValueError or TypeError that names the argument, what came and what is accepted."""
        check_number("n_clusters", self.n_clusters, 1, whole=True)
        check_number("concentration", self.concentration, 0.0, strict=True)
        check_number("max_iter", self.max_iter, 1, whole=True)
        check_number("tol", self.tol, 0.0)
        if self.inference not in INFERENCES:
            raise ValueError(
                f"inference must be one of {', '.join(map(repr, INFERENCES))}; got {self.inference!r}"
            )
        check_place(self.engine, self.ray_params)
        if self.prior is not None and not isinstance(self.prior, dict):
            raise TypeError(
                f"prior must be None or a dict with any of {', '.join(PRIOR_PARTS)}; got {self.prior!r}"
            )
        unknown = [name for name in self.prior or () if name not in PRIOR_PARTS]
        if unknown:
            raise ValueError(f"prior has the unknown part {unknown[0]!r}; known are {', '.join(PRIOR_PARTS)}")

    def _prior_parts(self, n_columns: int) -> dict:
        """What is given of the prior, as arrays of the right shapes."""
        parts, d = dict(self.prior or {}), n_columns
        for name in ("mean_precision", "spread"):
            if name in parts:
                check_number(f"prior[{name!r}]", parts[name], 0.0, strict=True)
        if "degrees_of_freedom" in parts:
            check_number("prior['degrees_of_freedom']", parts["degrees_of_freedom"], d - 1, strict=True)
        if "scatter" in parts and "spread" in parts:
            raise ValueError(
                "prior has both scatter and spread; spread is for a scatter made of the variances of the "
                "columns, give one"
            )
        for name, shape in (("mean", (d,)), ("scatter", (d, d))):
            if name not in parts:
                continue
            try:
                parts[name] = np.array(parts[name], dtype=float)
            except (TypeError, ValueError):
                raise ValueError(
                    f"prior[{name!r}] must be numbers of shape {shape}, got {parts[name]!r}"
                ) from None
            if parts[name].shape != shape or not np.isfinite(parts[name]).all():
                raise ValueError(
                    f"prior[{name!r}] must be finite numbers of shape {shape}, got shape {parts[name].shape}"
                )
        if "scatter" in parts:
            scatter = parts["scatter"]
            if not np.allclose(scatter, scatter.T) or np.linalg.eigvalsh((scatter + scatter.T) / 2)[0] <= 0:
                raise ValueError("prior['scatter'] must be a symmetric positive definite matrix")
        return parts

    def _check_weights(self, sample_weight: Any, n: int) -> np.ndarray:
        """(n,) weights, some of them positive; those of Gibbs sampling are 0 or 1."""
        weights = given_weights(sample_weight, n)
        used = weights[weights > 0]
        if len(used) == 0:
            raise ValueError("sample_weight has no positive weight; at least one row must count")
        if self.inference == "gibbs":
            if len(used) > MOST_GIBBS_ROWS:
                raise ValueError(
                    f'inference="gibbs" visits rows one by one and takes at most {MOST_GIBBS_ROWS} rows, got '
                    f"{len(used)}; "
                    'use inference="variational"'
                )
            if np.any(used != used[0]):
                raise ValueError(
                    'inference="gibbs" takes a sample_weight of 0 and one other value only; use '
                    'inference="variational"'
                )
            weights = (weights > 0).astype(float)
        return weights

    # -- rows --------------------------------------------------------------------------------------

    def _source_of(self, X: Any, y: Any = None) -> tuple[Any, Any]:
        """X and y; a path or Dataset becomes a source of rows, also where it was put into a session, and a
        label column labels.
        """
        if isinstance(X, SessionRows):
            X.check_open()
            inner, y = sources.source_of(X.X, y)
            return X.holding(inner), y
        return sources.source_of(X, y)

    def _read(self, X: Any, reset: bool) -> dict:
        """Rows {None: (n, d)} for training, checked: dense numbers, in memory or in their source."""
        if isinstance(X, SessionRows):
            return PlacedRows(self._read(X.X, reset), X.home)
        if is_views(X) and len(X.names) > 1:
            raise ValueError(
                f"{type(self).__name__} reads all columns of one view, but X has the views {list(X.names)}; "
                "give it one of them"
            )
        container = reading.check_container(self, X, reset)
        reading.count_rows(container)
        refuse(container, [Linear()], type(self).__name__)
        rows = reading.rows_of(container, [Linear()])
        if is_sparse(rows[None]):
            raise TypeError(
                f"X is a sparse matrix; {type(self).__name__} takes dense numbers only (X.toarray())"
            )
        return rows

    def _parts(self, X: Any) -> Iterator[np.ndarray]:
        """Rows (n, d), float64, to predict; those of paths and Datasets batch by batch."""
        check_is_fitted(self, "means_")
        X = X.X if isinstance(X, SessionRows) else X
        X, _ = sources.source_of(X)
        batches = sources.batches_to_predict(self, X) if isinstance(X, sources.SourceInput) else [X]
        for batch in batches:
            rows = np.asarray(self._read(batch, reset=False)[None], np.float64)
            if rows.shape[1] != self.means_.shape[1]:
                raise ValueError(
                    f"X has {rows.shape[1]} features, but the model was fitted to {self.means_.shape[1]} "
                    "features"
                )
            step = max(256, TILE // self.means_.size)
            for start in range(0, len(rows), step):
                yield rows[start : start + step]

    # -- training ----------------------------------------------------------------------------------

    def _train(
        self, rows: dict, y: np.ndarray | None, weights: np.ndarray, machines: MachineSettings | None
    ) -> Learned:
        n, d = rows[None].shape
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = MixtureSettings(
            n_clusters=int(self.n_clusters),
            concentration=float(self.concentration),
            prior=self._prior_parts(d),
            inference=self.inference,
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            seed=seed,
            machines=machines,
        )
        problem = Problem(views=[None], families=[], n_rows=n, n_entries=0, dtype=np.float64)
        program = MixtureProgram(None, y, weights, settings)
        engine = "local" if self.inference == "gibbs" else self.engine
        trained = run_of(self, rows, problem, program, progress_of(self.verbose), engine)
        learned: Learned = trained.results
        self.shard_failures_, self.engine_used_ = trained.failures, trained.engine
        self._keep(learned)
        if not self.converged_ and not stop_was_asked(self):
            warnings.warn(
                f"stopped after max_iter={self.n_iter_} iterations, the last of which raised the bound by "
                f"{learned.rise:.3g} per row, more "
                f"than tol={self.tol:g}; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=4,
            )
        return learned

    def _keep(self, learned: Learned) -> None:
        """Keep a mixture as public arrays."""
        q, prior = learned.posterior, learned.prior
        d = len(prior.mean)
        self.means_ = prior.mean + q.shifts
        self.mean_precision_, self.degrees_of_freedom_, self.scatter_ = (
            q.mean_precision,
            q.degrees_of_freedom,
            q.scatter,
        )
        self.weight_concentration_ = q.sticks
        self.cluster_weights_ = expected_weights(q.sticks)
        freedom = q.degrees_of_freedom - d - 1
        self.covariances_ = q.scatter / np.where(freedom > 0, freedom, q.degrees_of_freedom)[:, None, None]
        self.prior_ = {
            "mean": prior.mean,
            "mean_precision": prior.mean_precision,
            "degrees_of_freedom": prior.degrees_of_freedom,
            "scatter": prior.scatter,
        }
        self.labels_ = learned.labels
        self.n_clusters_ = len(np.unique(learned.labels))
        self.lower_bound_, self.history_ = learned.bound, learned.history
        self.n_iter_, self.converged_ = learned.n_iter, bool(learned.converged)
        vars(self).pop("samples_", None)
        if learned.samples is not None:
            self.samples_ = learned.samples

    @property
    def _posterior(self) -> Posterior:
        shifts = self.means_ - self.prior_["mean"]
        return Posterior(
            self.weight_concentration_, shifts, self.mean_precision_, self.degrees_of_freedom_, self.scatter_
        )

    # -- prediction --------------------------------------------------------------------------------

    def _logs(self, X: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows (t, d) and logs (t, K) of expected stick weight times Student t, some rows at a time."""
        check_is_fitted(self, "means_")
        density = predictive(self._posterior)
        for rows in self._parts(X):
            yield rows, density.logs(rows - self.prior_["mean"])

    def membership(self, X: Any) -> np.ndarray:
        """Shares of rows in the clusters, no labels counted: expected stick weight times Student t.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, path or Dataset
            Rows.

        Returns
        -------
        shares : ndarray of shape (n, K)
            Rows sum to one.
        """
        return np.concatenate([shares_of(logs)[0] for _, logs in self._logs(X)])


def check_restored(model: BaseMixture) -> None:
    """Raise ValueError when arrays out of a file do not fit together."""
    K, d = np.shape(model.means_)
    shapes = {
        "cluster_weights_": (K,),
        "weight_concentration_": (2, K),
        "mean_precision_": (K,),
        "degrees_of_freedom_": (K,),
        "scatter_": (K, d, d),
        "covariances_": (K, d, d),
    }
    if hasattr(model, "coef_"):
        D = np.shape(model.noise_)[1]
        shapes |= {"scales_": (K, d), "noise_": (K, D, d), "coef_": (K, len(model.classes_), 2 * D)}
    for name, shape in shapes.items():
        array = getattr(model, name, None)
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or array.shape != shape:
            raise ValueError(f"the parts of the model do not fit together: {name}")
    if not isinstance(model.prior_, dict) or np.shape(model.prior_.get("mean")) != (d,):
        raise ValueError("the parts of the model do not fit together: prior_")
    if not np.isfinite(model.scatter_).all() or np.any(np.linalg.eigvalsh(model.scatter_)[:, 0] <= 0):
        raise ValueError("the parts of the model do not fit together: scatter_")
