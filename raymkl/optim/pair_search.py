"""Searches over all variables of a working set, BLOCK of them in one go, for `smo`.

What is a vector is written out: a compiler that respects the order of comparisons goes number by number.
"""

from __future__ import annotations

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ir = cgutils.ir
# Variables looked at in one go, in vectors of LANES: a register of AVX-512 full of float64.
BLOCK = 64
LANES = 8
# Curvature below this is treated as flat: the pair then moves to the end of its box.
FLAT = 1e-12

_DOUBLES, _FLOATS = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.FloatType(), LANES)
_INT, _PLACE = ir.IntType(32), ir.IntType(64)


def _shuffled(builder, vector, order):
    places = ir.Constant(ir.VectorType(_INT, len(order)), order)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), places)


def _splat(builder, scalar):
    first = builder.insert_element(ir.Constant(_DOUBLES, ir.Undefined), scalar, _INT(0))
    return _shuffled(builder, first, [0] * LANES)


def _all(number):
    return ir.Constant(_DOUBLES, [number] * LANES)


def _data(context, builder, kind, array):
    return context.make_array(kind)(context, builder, array).data


def _address(builder, data, at, offset, vector=_DOUBLES):
    return builder.bitcast(builder.gep(data, [builder.add(at, _PLACE(offset))]), vector.as_pointer())


def _larger(builder, left, right):
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


def _smaller(builder, left, right):
    return builder.select(builder.fcmp_ordered("<", left, right), left, right)


def _folded(builder, vectors, choice):
    """The one number of some vectors that `choice` prefers to all others."""
    while len(vectors) > 1:
        vectors = [
            choice(builder, left, right) for left, right in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    vector = vectors[0]
    while vector.type.count > 1:
        half = vector.type.count // 2
        low, high = (
            _shuffled(builder, vector, list(range(half))),
            _shuffled(builder, vector, list(range(half, 2 * half))),
        )
        vector = choice(builder, low, high)
    return builder.extract_element(vector, _INT(0))


@intrinsic
def largest_slope(typing_context, grow, gradient, at):
    """The largest grow[k] - gradient[k] for at <= k < at + BLOCK."""
    signature = types.float64(grow, gradient, types.intp)

    def generate(context, builder, signature, arguments):
        at = arguments[2]
        grow, gradient = (_data(context, builder, signature.args[k], arguments[k]) for k in range(2))
        values = [
            builder.fsub(
                *(builder.load(_address(builder, data, at, k), align=8) for data in (grow, gradient))
            )
            for k in range(0, BLOCK, LANES)
        ]
        return _folded(builder, values, _larger)

    return signature, generate


@intrinsic
def write_gains(typing_context, shrink, gradient, diagonal, row, at, top, curvature, gains, lowest):
    """What pairs gain: gains[k] = (top - value_k)^2 / (curvature + diagonal[k] - 2 row[k]) for at <= k < at +
    BLOCK; returns the largest.

    value_k = shrink[k] - gradient[k]; there is no gain where that is above `top`. lowest[0] becomes the least
    of it and all values. Gains are float32: they choose among pairs, and nothing else is made of them.
    """
    signature = types.float32(
        shrink, gradient, diagonal, row, types.intp, types.float64, types.float64, gains, lowest
    )

    def generate(context, builder, signature, arguments):
        at, top, curvature = arguments[4], _splat(builder, arguments[5]), _splat(builder, arguments[6])
        shrink, gradient, diagonal, row, out, lowest = (
            _data(context, builder, signature.args[k], arguments[k]) for k in (0, 1, 2, 3, 7, 8)
        )
        values, gains = [], []
        for k in range(0, BLOCK, LANES):
            side, slope, own, line = (
                builder.load(_address(builder, data, at, k), align=8)
                for data in (shrink, gradient, diagonal, row)
            )
            value = builder.fsub(side, slope)
            distance = builder.fptrunc(_larger(builder, builder.fsub(top, value), _all(0.0)), _FLOATS)
            bend = builder.fsub(builder.fadd(curvature, own), builder.fmul(_all(2.0), line))
            bend = builder.fptrunc(_larger(builder, bend, _all(FLAT)), _FLOATS)
            gain = builder.fdiv(builder.fmul(distance, distance), bend)
            builder.store(gain, _address(builder, out, at, k, _FLOATS), align=4)
            values.append(value)
            gains.append(gain)
        place = builder.gep(lowest, [_PLACE(0)])
        builder.store(_smaller(builder, _folded(builder, values, _smaller), builder.load(place)), place)
        return _folded(builder, gains, _larger)

    return signature, generate
