"""Parameters of a kernel by name, as scikit-learn has them: read, changed, compared and shown."""

from __future__ import annotations

import inspect
from typing import Any, Self

from ..data.views import view_key


class Parameters:
    """What is known by the arguments of its `__init__`, kept as attributes of the same names.

    Two with equal arguments are equal.
    """

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict:
        """Parameters by name, as scikit-learn does it (parameters of nested kernels as `name__parameter`).

        Parameters
        ----------
        deep : bool
            Whether to look into nested kernels.

        Returns
        -------
        params : dict
            Values by name.
        """
        params = {name: getattr(self, name) for name in self._parameter_names()}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Parameters):
                    params.update({f"{name}__{inner}": v for inner, v in value.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; unknown names are an error that lists the known ones.

        Parameters
        ----------
        **params : dict
            New values by name.

        Returns
        -------
        self : Kernel
            The kernel itself; unchanged if a value is refused.
        """
        before = dict(vars(self))
        try:
            for name, value in params.items():
                head, _, inner = name.partition("__")
                if head not in self._parameter_names():
                    raise ValueError(
                        f"{type(self).__name__} has no parameter {head!r}; known: {self._parameter_names()}"
                    )
                if inner:
                    getattr(self, head).set_params(**{inner: value})
                else:
                    setattr(self, head, value)
            self._check()
        except (TypeError, ValueError):
            vars(self).update(before)
            raise
        return self

    def _check(self) -> None:
        """Raise ValueError for parameters out of range."""

    def _identity(self) -> tuple:
        return (
            type(self).__name__,
            *((name, view_key(value)) for name, value in self.get_params(deep=False).items()),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parameters) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        shown = [
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if defaults[name].default is inspect.Parameter.empty
            or view_key(value) != view_key(defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"
