"""From what a user passes to what the engine takes: rows by view, checked, with errors that say what is
wrong.

`container` says what X may be, `rows` and `numbers` read its views, `matrices` those that are ready-made
kernels, and `definiteness` looks whether these are kernels at all.
"""

from .container import check_container, count_rows
from .definiteness import check_kernel_stack
from .matrices import MatrixColumns, is_matrix, matrices_of, matrix_columns_of, precomputed_stack
from .rows import rows_of

__all__ = [
    "MatrixColumns",
    "check_container",
    "check_kernel_stack",
    "count_rows",
    "is_matrix",
    "matrices_of",
    "matrix_columns_of",
    "precomputed_stack",
    "rows_of",
]
