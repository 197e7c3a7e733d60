"""Cross-validation and hyper-parameter search over heads: kernel blocks are computed once for all folds and
settings.

MKLSearchCV    a grid of settings, in the manner of scikit-learn's GridSearchCV
tune           Ray Tune over settings; trials share one pool of shards
trainable      the same for people who build their own Tuner
"""

from .grid import MKLSearchCV
from .tuning import trainable, tune

__all__ = ["MKLSearchCV", "trainable", "tune"]
