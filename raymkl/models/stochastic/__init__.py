"""Multi-class multiple kernel learning by stochastic steps: `estimator` is the model, `stream` the rows of
one that keep coming.
"""

from .estimator import StochasticMKLClassifier

__all__ = ["StochasticMKLClassifier"]
