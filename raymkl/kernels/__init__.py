"""Kernels: formulas, views, composition, normalisation, and the families that make many of them cost as much as one."""

from .base import Kernel, Product, Scaled, Sum
from .formulas import RBF, Chi2, Custom, HistogramIntersection, Laplacian, Linear, Polynomial, Precomputed, rbf, stored
from .store import KernelStore
from .store_writer import write_store

__all__ = [
    "RBF",
    "Chi2",
    "Custom",
    "HistogramIntersection",
    "Kernel",
    "KernelStore",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Precomputed",
    "Product",
    "Scaled",
    "Sum",
    "rbf",
    "stored",
    "write_store",
]
