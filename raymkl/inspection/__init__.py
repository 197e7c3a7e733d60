"""Looking at models and sets of kernels; `raymkl.diagnostics`, `raymkl.plot` and `raymkl.report` are the way
in.
"""
