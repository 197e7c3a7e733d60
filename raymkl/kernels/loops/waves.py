"""Sines and cosines of many angles at once: a polynomial after the angle was brought into [-pi/2, pi/2],
which compilers turn into vectors.

x = r + q pi,   |r| <= pi/2:     cos x = (-1)^q cos r,     sin x = (-1)^q sin r
"""

from __future__ import annotations

import numpy as np

from .jit import compiled

# Angles beyond this lose digits when multiples of pi are taken off; NumPy's own functions are asked then.
LARGEST_ANGLE = {np.dtype(np.float32): 2e3, np.dtype(np.float64): 1e6}
# Pi in parts, of which all but the last have so few bits that their multiples are exact.
PI_1, PI_2 = 3.1415926534682512, 1.2154201013012384e-10
SHORT_PI_1, SHORT_PI_2, SHORT_PI_3 = (
    np.float32(3.140625),
    np.float32(9.670257568359375e-04),
    np.float32(6.277114152908325e-07),
)
INVERSE_PI = 0.3183098861837907
# Taylor coefficients: what is left out is below half a unit of the last place.
COSINE = np.array([(-1.0) ** (k // 2) / float(np.prod(np.arange(1.0, k + 1))) for k in range(0, 22, 2)])
SINE = np.array([(-1.0) ** (k // 2) / float(np.prod(np.arange(1.0, k + 1))) for k in range(1, 22, 2)])
C0, C1, C2, C3, C4, C5, C6, C7, C8, C9, C10 = (float(c) for c in COSINE)
S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10 = (float(s) for s in SINE)
F = np.float32
SHORT_C = tuple(F(c) for c in COSINE[:7])
SHORT_S = tuple(F(s) for s in SINE[:6])
SC0, SC1, SC2, SC3, SC4, SC5, SC6 = SHORT_C
SS0, SS1, SS2, SS3, SS4, SS5 = SHORT_S
SHORT_INVERSE_PI, HALF, TWO, ONE = F(INVERSE_PI), F(0.5), F(2.0), F(1.0)


@compiled(fastmath={"contract"})
def _waves_double(angles, factor, out):
    n, D = angles.shape
    for i in range(n):
        for j in range(D):
            x = angles[i, j]
            q = np.floor(x * INVERSE_PI + 0.5)
            r = (x - q * PI_1) - q * PI_2
            sign = factor * (1.0 - 2.0 * (q - 2.0 * np.floor(q * 0.5)))
            z = r * r
            c = C9 + z * C10
            c = C7 + z * (C8 + z * c)
            c = C5 + z * (C6 + z * c)
            c = C3 + z * (C4 + z * c)
            c = C1 + z * (C2 + z * c)
            s = S9 + z * S10
            s = S7 + z * (S8 + z * s)
            s = S5 + z * (S6 + z * s)
            s = S3 + z * (S4 + z * s)
            s = S1 + z * (S2 + z * s)
            out[i, j] = sign * (C0 + z * c)
            out[i, D + j] = sign * (r * (S0 + z * s))


@compiled(fastmath={"contract"})
def _waves_short(angles, factor, out):
    n, D = angles.shape
    for i in range(n):
        for j in range(D):
            x = angles[i, j]
            q = np.floor(x * SHORT_INVERSE_PI + HALF)
            r = ((x - q * SHORT_PI_1) - q * SHORT_PI_2) - q * SHORT_PI_3
            sign = factor * (ONE - TWO * (q - TWO * np.floor(q * HALF)))
            z = r * r
            c = SC3 + z * (SC4 + z * (SC5 + z * SC6))
            c = SC1 + z * (SC2 + z * c)
            s = SS3 + z * (SS4 + z * SS5)
            s = SS1 + z * (SS2 + z * s)
            out[i, j] = sign * (SC0 + z * c)
            out[i, D + j] = sign * (r * (SS0 + z * s))


def waves(angles: np.ndarray, factor: float) -> np.ndarray:
    """(n, 2 D) factor * [cos, sin] of angles (n, D), float32 or float64."""
    n, D = angles.shape
    out = np.empty((n, 2 * D), angles.dtype)
    largest = max(float(angles.max(initial=0.0)), -float(angles.min(initial=0.0)))
    if not largest <= LARGEST_ANGLE[angles.dtype]:
        wide = angles.astype(np.float64)
        out[:, :D], out[:, D:] = factor * np.cos(wide), factor * np.sin(wide)
    elif angles.dtype == np.float32:
        _waves_short(angles, np.float32(factor), out)
    else:
        _waves_double(angles, float(factor), out)
    return out
