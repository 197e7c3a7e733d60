"""Whether a difference between models is more than chance.

Scores of the splits of a cross-validation are not independent: training sets overlap. The usual t-test takes
them for independent and finds differences everywhere. Nadeau and Bengio's corrected resampled t-test widens
the variance by what the overlap brings,

    t = mean(d) / sqrt( (1/J + mean(n_test / n_train)) var(d) ),     J - 1 degrees of freedom,

with the differences d (J,) of the scores of two models on the same J splits. Several models against one
baseline are several tests, of which one may look well by luck: Holm's correction bounds the chance of even
one false finding among them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats


def corrected_t_test(differences: Sequence[float] | np.ndarray, ratio: float) -> float:
    """Two-sided p-value of Nadeau and Bengio's corrected resampled t-test.

    Parameters
    ----------
    differences : array-like of shape (J,)
        Differences of the scores of two models on the same J splits.
    ratio : float
        Mean of n_test / n_train over the splits.

    Returns
    -------
    p_value : float
        NaN for fewer than two splits. Differences that are all the same number have no variance: 1 if it is
        zero, else 0.

    References
    ----------
    Nadeau, Bengio: Inference for the generalization error. Machine Learning 52, 2003.

    Examples
    --------
    >>> from raymkl.evaluate import corrected_t_test
    >>> round(corrected_t_test([0.02, 0.01, 0.03, 0.02, 0.01], ratio=0.25), 3)
    0.033
    """
    d = np.asarray(differences, float)
    if len(d) < 2 or not np.isfinite(d).all():
        return float("nan")
    if d.std() == 0:
        return 1.0 if d.mean() == 0 else 0.0
    t = abs(d.mean()) / np.sqrt((1.0 / len(d) + ratio) * d.var(ddof=1))
    return float(2.0 * stats.t.sf(t, len(d) - 1))


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's correction of the p-values of several tests.

    They are made larger so that comparing each with 0.05 goes wrong with a chance of 0.05 for all of them
    together.

    Parameters
    ----------
    p_values : array-like of shape (k,)
        Of k tests; those that are NaN stand for no test and stay as they are.

    Returns
    -------
    corrected : ndarray of shape (k,)
        In the same order.

    Examples
    --------
    >>> from raymkl.evaluate import holm
    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, float)
    result = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = len(order) - np.arange(len(order))
    result[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return result
