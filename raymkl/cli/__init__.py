"""The command line: `raymkl` and `python -m raymkl.cli`."""

from .commands import main

__all__ = ["main"]
