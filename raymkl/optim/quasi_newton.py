"""Directions from gradients and the last steps (limited-memory BFGS), for parameters known by what they do to
the scores.

A vector v of parameters is a linear function of slopes g (n, M) in the scores, and changes the scores by
`change` (n, M). For two such vectors <v, v'> = sum(g * change'), in the input space and in a kernel's space
alike, so nothing else is needed of the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# Steps that are remembered.
DEPTH = 8


@dataclass
class Vector:
    """slopes : (n, M). parameters : tuple of arrays. change : (n, M) of the scores."""

    slopes: np.ndarray
    parameters: tuple
    change: np.ndarray

    def inner(self, other: Vector) -> float:
        return float(np.sum(self.slopes * other.change))

    def plus(self, factor: float, other: Vector) -> Vector:
        """self + factor * other."""
        parameters = tuple(
            own + factor * more for own, more in zip(self.parameters, other.parameters, strict=True)
        )
        return Vector(self.slopes + factor * other.slopes, parameters, self.change + factor * other.change)

    def times(self, factor: float) -> Vector:
        return Vector(
            factor * self.slopes, tuple(factor * own for own in self.parameters), factor * self.change
        )


@dataclass
class Memory:
    """The last steps s and changes of the gradient y, oldest first, those with positive curvature s'y."""

    pairs: list[tuple[Vector, Vector, float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.pairs)

    def add(self, direction: Vector, length: float, before: Vector, after: Vector) -> None:
        """Remember a step of the given length against `direction`."""
        step, difference = direction.times(-length), after.plus(-1.0, before)
        curvature = step.inner(difference)
        if curvature > 1e-10 * max(step.inner(step), 1e-300):
            self.pairs = [*self.pairs[1 - DEPTH :], (step, difference, curvature)]

    def direction(self, gradient: Vector) -> Vector:
        """The direction whose opposite is gone along: the gradient times the approximate inverse Hessian."""
        vector, factors = gradient, []
        for step, difference, curvature in reversed(self.pairs):
            factors.append(step.inner(vector) / curvature)
            vector = vector.plus(-factors[-1], difference)
        if self.pairs:
            _, difference, curvature = self.pairs[-1]
            vector = vector.times(curvature / max(difference.inner(difference), 1e-300))
        for (step, difference, curvature), factor in zip(self.pairs, reversed(factors), strict=True):
            vector = vector.plus(factor - difference.inner(vector) / curvature, step)
        return vector
