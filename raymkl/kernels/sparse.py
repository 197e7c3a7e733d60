"""Whether something is a sparse matrix, without loading scipy for those who have none."""

from __future__ import annotations

import sys
from typing import Any


def is_sparse(x: Any) -> bool:
    """Whether x is a scipy sparse matrix or array. Only where `scipy.sparse` is loaded already can there be one."""
    module = sys.modules.get("scipy.sparse")
    test = getattr(module, "issparse", None)  # None too while another thread is still importing it
    return test is not None and test(x)
