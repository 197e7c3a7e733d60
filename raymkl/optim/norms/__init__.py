"""Norms over kernels: what each is, and both sides of the certificate."""

from .base import TINY, Norm, power_norm
from .elastic import ElasticNetNorm
from .grouped import GroupedNorm
from .lp import LpNorm, block_norm, dual_exponent, weight_norm
from .priced import PricedNorm
from .quadratic import QuadraticNorm

__all__ = [
    "TINY",
    "ElasticNetNorm",
    "GroupedNorm",
    "LpNorm",
    "Norm",
    "PricedNorm",
    "QuadraticNorm",
    "block_norm",
    "dual_exponent",
    "power_norm",
    "weight_norm",
]
