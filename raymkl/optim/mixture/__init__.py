"""Dirichlet process mixtures of Gaussians: posteriors and their bound, merges, collapsed Gibbs sampling, and
descent of the machines.
"""
