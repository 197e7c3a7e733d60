"""Explicit features: of kernels' values with landmarks, and random ones of Gaussian kernels."""
