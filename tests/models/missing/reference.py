"""Gated matrices, straight from the definition: entries s_m(x) c_m k_m(x, z) s_m(z), constants from rows that
have the kernel.
"""

import numpy as np


def constant(kind, block):
    """Factor of `normalize` from the matrix (r, r) of the rows that have the kernel; 0 where there is nothing
    to divide by.
    """
    if kind == "multiplicative":
        size = np.trace(block) / len(block) - block.mean() if len(block) else 0.0
    elif kind == "trace":
        size = np.trace(block)
    elif kind == "tail":
        size = np.linalg.eigvalsh(block)[:-2].sum()
    else:
        return 1.0
    return 1.0 / size if size > 1e-12 else 0.0


def gated(bank, reads, names, train, test, kind=None, missing="zero"):
    """(n, n, E) and (t, n, E).

    train, test : (complete views by name, presence (n, V)). reads : names of the views of every kernel.
    """
    (A, P), (B, Q) = train, test
    used = [names.index(v) for v in dict.fromkeys(v for views in reads for v in views)]
    squares, crosses = [], []
    for kernel, views in zip(bank, reads, strict=True):
        own = [names.index(v) for v in views]
        s, t = P[:, own].all(axis=1), Q[:, own].all(axis=1)
        K, Kt = kernel(A), kernel(B, A)
        c = constant(kind, K[np.ix_(s, s)])
        g, h = s.astype(float), t.astype(float)
        if kind == "spherical":
            g, h = g / np.sqrt(np.diag(K)), h / np.sqrt(kernel.diag(B))
        if missing == "scaled":
            g = g * np.sqrt(len(used) / P[:, used].sum(axis=1))
            h = h * np.sqrt(len(used) / np.maximum(Q[:, used].sum(axis=1), 1))
        squares.append(c * K * np.outer(g, g))
        crosses.append(c * Kt * np.outer(h, g))
    if missing == "neutral":
        a, b = 1.0 - P[:, used], 1.0 - Q[:, used]
        if kind == "spherical":
            a, b = (z / np.sqrt(np.maximum(z.sum(axis=1, keepdims=True), 1)) for z in (a, b))
        c = constant(kind, a @ a.T)
        squares.append(c * a @ a.T)
        crosses.append(c * b @ a.T)
    return np.stack(squares, axis=2), np.stack(crosses, axis=2)


def clusters(P, patterns):
    """(n, 1 + R) all rows, then the rows of each pattern."""
    return np.column_stack([np.ones(len(P)), *((row == P).all(axis=1).astype(float) for row in patterns)])


def in_clusters(K, left, right):
    """Entries (n, m, (1 + R) M) of the clusters, one after the other."""
    return np.concatenate(
        [K * left[:, [j], None] * right[None, :, [j]] for j in range(left.shape[1])], axis=2
    )


def certificate(model, K, y, C, p, groups=None):
    """(primal, dual) of a two-class model with the hinge loss, from its public arrays and entries (n, n, E)
    of our own.
    """
    groups = np.zeros(K.shape[2], int) if groups is None else groups
    star = np.inf if p == 1 else 1.0 if np.isinf(p) else p / (p - 1)

    def size(x, q):
        return x.max(initial=0.0) if np.isinf(q) else np.sum(x**q) ** (1 / q)

    a, theta = np.zeros(len(y)), np.ravel(model.kernel_weights_)
    a[model.support_] = model.dual_coef_[0]
    G = np.einsum("ijm,j->im", K, a)
    s = np.maximum(a @ G, 0.0)
    parts = [groups == g for g in np.unique(groups)]
    loss = C * np.maximum(0.0, 1.0 - y * (G @ theta + model.intercept_[0])).sum()
    primal = 0.5 * sum(size(theta[part] * np.sqrt(s[part]), p) ** 2 for part in parts) + loss
    return primal, y @ a - 0.5 * sum(size(np.sqrt(s[part]), star) ** 2 for part in parts)
