"""Multi-class multiple kernel learning by stochastic steps: `estimator` is the model, `stream` the rows of
one that keep coming, `landmarks` what it predicts with over explicit features, `prices` what kernels cost.
"""

from .estimator import StochasticMKLClassifier

__all__ = ["StochasticMKLClassifier"]
