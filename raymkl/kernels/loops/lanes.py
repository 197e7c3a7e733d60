"""Sizes that tables and the loops over them agree on.

Numba keeps compiled loops by the date of their own file: whoever changes a number here touches the loops,
too.
"""

# Functions in a line of a narrow table come in groups of so many float32: one register of AVX-512, two or
# four of narrower machines.
LANES = 16
# Coefficients of a polynomial in a cell of a narrow table.
CUBIC_TERMS = 4
# Columns whose powers are computed before they are added.
COLUMNS = 16
# Rows handled together: a few cache lines of statistics, whose partial sums stay in the first-level cache.
TILE = 64
# Coefficients of a polynomial in a cell of a wide table: a register of AVX-512 full of float64, as are the
# functions taken together.
TERMS = 8
