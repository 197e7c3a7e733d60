"""What the coordinator does about proofs (see `shard.proof`): it asks the shards for those of some heads, and
puts their parts together.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..heads.roster import HeadAtWork
from ..shard.proof import SAMPLE, HeadProof, ProofRequest, prove, review
from .shared import Shared

# A proof with cached statistics holds if a sample shows an error of the gap below this part of the tolerance.
SAMPLED_PART = 0.05


def proof_request(shared: Shared, heads: dict[int, HeadAtWork]) -> ProofRequest:
    """The present points of some heads."""
    ids = shared.columns_of(
        np.flatnonzero(np.any([head.solver.told != 0 for head in heads.values()], axis=0))
    )
    request = ProofRequest(
        ids, shared.rows_of(ids) if shared.compared and len(ids) else {}, shared.found.bounds
    )
    for h, head in heads.items():
        solver = head.solver
        places = np.flatnonzero(solver.told[ids])
        point = (places, solver.told[ids[places]], solver.theta * head.normalisation, solver.combination)
        request.heads.append(HeadProof(h, *point, solver.intercepts, solver.intercept))
    return request


def look_again(shared: Shared, heads: dict[int, HeadAtWork]) -> None:
    """Let heads take the proofs of their points.

    Weights that were held and prove not to belong there move, which asks for one more.
    """
    for h, (losses, s) in _proofs(shared, heads).items():
        heads[h].solver.take_proof(losses, s)
    moved = {h: head for h, head in heads.items() if head.solver.renew_weights()}
    for h, (losses, s) in _proofs(shared, moved, quadratic=False).items():
        moved[h].solver.take_proof(losses, s)


def _proofs(
    shared: Shared, heads: dict[int, HeadAtWork], quadratic: bool = True
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Accurate losses (B,) and quadratic terms (E,) of the present points of some heads.

    quadratic : else these are known already.
    """
    found: dict[int, tuple] = {}
    # Large weights of vanishing quadratic terms (p > 2) ask for all the precision there is.
    # Precise statistics are computed once for all heads: where these are many, samples for each of them would
    # cost more.
    sampled = shared.cached and SAMPLE * len(heads) < shared.problem.n_rows
    rough = {h: head for h, head in heads.items() if sampled and head.solver.head.norm.bounded}
    for precise in (False, True):
        some = {h: head for h, head in heads.items() if h not in found} if precise else rough
        if not some:
            continue
        request = replace(proof_request(shared, some), quadratic=quadratic)
        if not precise:
            request.slots = shared.cache.slot[request.ids]
        parts = shared.crew.apply(prove, request)
        for k, (h, head) in enumerate(some.items()):
            losses, terms, error, variance = (
                np.sum([getattr(part[k], name) for part in parts], axis=0)
                for name in ("losses", "quadratic", "error", "variance")
            )
            allowed = SAMPLED_PART * head.solver.head.tol * abs(head.solver.certificate.primal)
            if precise or abs(error) + 3.0 * np.sqrt(variance) <= allowed:
                found[h] = losses, terms * head.normalisation if quadratic else head.solver.s
        # Classes of a joint problem have one loss, and so one proof.
        unproved = {head.mover for h, head in some.items() if h not in found}
        found = {h: proof for h, proof in found.items() if heads[h].mover not in unproved}
    return found


def choose_rows_anew(shared: Shared, heads: dict[int, HeadAtWork]) -> None:
    """Choose the rows at work of heads whose proof has failed; the shards have the f of all rows that it has
    shown.
    """
    for held in (True, False):
        some = {h: head for h, head in heads.items() if head.solver.held == held}
        if some:
            shared.crew.apply(review, proof_request(shared, some), held)
    for head in heads.values():
        head.solver.review_due = False
