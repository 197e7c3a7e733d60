"""Models whose weights of the kernels depend on where an example lies."""
