"""How the weights of the kernels move while the dual variables are found: rules with one signature.

    max_a  dual_value(a) - 1/2 dual_norm(s(a)),    s_m = a' K_m a,    at the optimum theta = gradient of
           dual_norm at s

* Follow             theta is the gradient of the dual norm at every dual point; the sub-problem knows how
                     theta will answer and a line search on the exact dual makes every step an ascent step
                     (chunking, p > 1).
* FollowMultipliers  the same with a calmer norm in place of the dual norm that is renewed until both agree
                     (chunking, "auto", p at or very near 1; see `multipliers`).
* FixedPoint         theta is made anew from ||w_m|| after every sub-problem (chunking, "analytic", p at or
                     very near 1).
* Hold               theta stays until the SVM at this theta is solved well enough, then takes an analytic
                     step (`HoldAnalytic`) or one of cutting planes (`HoldCuts`). Wrapper: solved to full
                     precision; else until theta is the larger part of the gap.
* Led                theta is that of a group of heads, whose leader has a rule of its own.

A step asks a rule for `before_step`, `response`, `step_length`, `after_step` in this order; a round for
`to_certify`, then `after_round`; a problem with other bounds for `new_stage`. Every one of them takes and
returns weights as arrays (M,) and changes none in place.
"""

from .choosing import rule_of
from .following import Follow, FollowMultipliers
from .holding import FixedPoint, HoldAnalytic, HoldCuts
from .rules import CertifiedPoint, Led, WeightRule

__all__ = [
    "CertifiedPoint",
    "FixedPoint",
    "Follow",
    "FollowMultipliers",
    "HoldAnalytic",
    "HoldCuts",
    "Led",
    "WeightRule",
    "rule_of",
]
