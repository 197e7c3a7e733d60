"""Evidence: fair comparisons of models, permutation tests, and how sure weights, views and kernels are.

compare         nested cross-validation of several models, with a corrected test of their differences
permutation     how often permuted targets score as well
stability       weights over many half-samples
drop_views, drop_kernels    the score without one view, or kernel, after the other

Folds, permutations, half-samples and smaller banks are heads over one set of kernel blocks (see
`raymkl.search.cases`). Every result has `table()`, `plot(ax=None)`, `to_latex()` and `to_csv(path)`.
"""

from .compare import Comparison, compare
from .displays import ComparisonDisplay, DropDisplay, PermutationDisplay, StabilityDisplay
from .drop import Drop, drop_kernels, drop_views
from .permutation import Permutation, permutation
from .significance import corrected_t_test, holm
from .stability import Stability, stability

__all__ = [
    "Comparison",
    "ComparisonDisplay",
    "Drop",
    "DropDisplay",
    "Permutation",
    "PermutationDisplay",
    "Stability",
    "StabilityDisplay",
    "compare",
    "corrected_t_test",
    "drop_kernels",
    "drop_views",
    "holm",
    "permutation",
    "stability",
]
