"""Rules for weights over five kernels, and points that they are shown."""

import numpy as np

from raymkl.optim.certificate import Certificate
from raymkl.optim.norms import LpNorm
from raymkl.optim.weights import CertifiedPoint, rule_of

M, TOL = 5, 1e-3
ALL = np.ones(M, bool)
S = np.random.default_rng(4).uniform(0.2, 3.0, M)
NOISE = np.full(M, 1e-9)


def start(p):
    return LpNorm(p).start(M)


def made(p, solver="chunking", theta_step="auto", shared=False, used=ALL, theta=None):
    return rule_of(LpNorm(p), used, TOL, start(p) if theta is None else theta, solver, theta_step, shared)


def certificate_of(svm_gap, weight_gap, primal=10.0, gap=0.1):
    return Certificate(primal, primal * (1 - gap), gap, 0.0, svm_gap, weight_gap)


def seen(theta, svm_gap=0.0, weight_gap=1.0, still=False, s=S, dual_value=3.0, noise=NOISE, gap=0.1):
    return CertifiedPoint(theta, s, noise, certificate_of(svm_gap, weight_gap, gap=gap), dual_value, still)
