"""Models that can be written to a file."""

from __future__ import annotations

from typing import Any


class Saves:
    """What `raymkl.load` gives back after `save`."""

    def save(self, path: Any) -> None:
        """Write the fitted model to an Arrow file (see `raymkl.load`).

        Parameters
        ----------
        path : str or path
            File to write.
        """
        from ...io import save

        save(self, path)
