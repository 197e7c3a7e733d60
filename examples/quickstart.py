"""Ten lines of MKL
================

Which width of a Gaussian kernel suits the breast cancer data, and is the linear kernel needed?

Run it::

    python examples/quickstart.py
"""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from raymkl import MKLClassifier, kernels

X, y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
bank = [*kernels.rbf([0.001, 0.01, 0.1, 1.0]), kernels.Linear()]
clf = MKLClassifier(kernels=bank, C=1.0, p=4 / 3, normalize="multiplicative").fit(X, y)
for kernel, weight in zip(bank, clf.kernel_weights_, strict=True):
    print(f"{weight:.3f}  {kernel}")
print(
    f"accuracy {clf.score(X_test, y_test):.3f}, duality gap {clf.duality_gap_:.1e}, {len(clf.support_)} "
    "support vectors"
)
