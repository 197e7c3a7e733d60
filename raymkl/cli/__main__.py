"""`python -m raymkl.cli`."""

from . import main

main()
