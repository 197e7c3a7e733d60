"""Losses and their dual side."""

from .feasible import feasible, keeping_sum
from .joint import JointHinge, joint_losses, joint_violations
from .loss import Loss, Terms, slopes
from .margin import Hinge, Logistic, SquaredHinge
from .one_class import OneClass
from .residual import EpsilonInsensitive, Huber, Quantile, Squared, SquaredEpsilonInsensitive

CLASSIFICATION: dict[str, type[Loss]] = {loss.name: loss for loss in (Hinge, SquaredHinge, Logistic, Squared)}
REGRESSION: dict[str, type[Loss]] = {
    loss.name: loss for loss in (EpsilonInsensitive, Squared, SquaredEpsilonInsensitive, Huber, Quantile)
}

__all__ = [
    "CLASSIFICATION",
    "REGRESSION",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "JointHinge",
    "Logistic",
    "Loss",
    "OneClass",
    "Quantile",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "Terms",
    "feasible",
    "joint_losses",
    "joint_violations",
    "keeping_sum",
    "slopes",
]
