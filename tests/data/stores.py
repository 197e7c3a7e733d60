"""A small stack of kernels, the same for all tests of kernel stores."""

import numpy as np
import scipy.sparse as sp

N, DEPTH = 23, 3
RNG = np.random.default_rng(0)
FACTORS = RNG.normal(size=(DEPTH, N, 5))
STACK = np.einsum("mid,mjd->ijm", FACTORS, FACTORS)  # (N, N, DEPTH), positive semi-definite
STACK32 = STACK.astype(np.float32)
VIEWS = {
    "a": RNG.normal(size=(N, 4)),
    "h": RNG.random((N, 6)),
    "s": sp.random(N, 8, density=0.4, random_state=0, format="csr"),
}
BLOCK_SIZES = [1, 2, 7, N - 1, N, N + 10, None]


def sine_kernel(A, B):
    return np.sin(A) @ np.sin(B).T


def whole(store):
    return store.row_segments(np.arange(store.shape[0]), 0, store.shape[0])
