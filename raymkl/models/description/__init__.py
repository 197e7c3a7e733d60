"""From rows, kernels and heads to the problem that the engine solves: precision, diagonals, tail sums."""
