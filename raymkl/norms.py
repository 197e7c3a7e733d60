"""Norms over kernels, for `norm=` of the estimators, and conversions between conventions.

    min_{w,b}  1/2 N(l) + sum_i C_i loss(f(x_i), y_i),    l_m = ||w_m||

| norm | N(l) | what for |
|---|---|---|
| `LpNorm(p)` | ||l||_p^2 | the parameter `p`: 1 selects few kernels, 2 is the plain sum |
| `GroupedNorm(p, groups, outer=)` | p within groups, `outer` between them | kernels of a view |
| `QuadraticNorm(E)` | min_{t >= l} t' E^-1 t | kernels that are alike, or neighbours in a graph |
| `ElasticNetNorm(p, mix)` | mix ||l||_p^2 + (1 - mix) ||l||_2^2 | few kernels, of similar ones all or none |

`weight_norm` and `block_norm` convert between the block norm p and the norm q of the weights that other tools
state.

Examples
--------
>>> from raymkl import MKLClassifier, kernels, norms
>>> bank = [*kernels.rbf([0.1, 1.0]), kernels.Linear()]
>>> clf = MKLClassifier(kernels=bank, norm=norms.GroupedNorm(2.0, ["width", "width", "product"], outer=1.0))
>>> clf.norm
GroupedNorm(p=2.0, groups=('width', 'width', 'product'), outer=1.0)
"""

from .optim.norms import ElasticNetNorm, GroupedNorm, LpNorm, Norm, QuadraticNorm, block_norm, weight_norm

__all__ = ["ElasticNetNorm", "GroupedNorm", "LpNorm", "Norm", "QuadraticNorm", "block_norm", "weight_norm"]
