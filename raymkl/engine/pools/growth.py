"""Clusters that may grow: whether there is an autoscaler, what it may add at most, and asking it for a place.

Ray says little about that. A cluster's configuration (`get_cluster_config`, which Ray Train goes by) is
written by some platforms only; the status that every autoscaler writes tells that there is one; the newer one
also says which placement groups it can never place. So a request that exceeds the nodes that are alive is
refused at once where Ray knows better, and after `timeout_s` where it does not.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group

from ..faults.policy import ShardFailure
from ..params import RayParams
from .demand import Room, in_words, trouble_with

logger = logging.getLogger("raymkl")

# How often somebody who waits for nodes says so, and how often the cluster is looked at meanwhile.
SAY_SECONDS = 10.0
GLANCE_SECONDS = 1.0
# An autoscaler writes its first status some seconds after the head node has started.
FIRST_STATUS_SECONDS = 10.0
# What Ray calls the types of nodes where no autoscaler manages them.
OWN_TYPE = re.compile(r"(node_[0-9a-f]{20,}|local_node|)")
STATUS_KEY = "__autoscaling_status"
GROWN = "the Ray cluster, with all nodes that its autoscaler may add,"


@dataclass(frozen=True)
class Growth:
    """What a cluster may become.

    able : whether there is an autoscaler. rooms : its nodes at most, None where nobody says.
    """

    able: bool = False
    rooms: list[Room] | None = None


def refusal(num_shards: int, demand: Room, growth: Growth, placement: str = "SPREAD") -> str | None:
    """Why the shards could never find a place, however the cluster grows; None where they might."""
    return (
        None
        if growth.rooms is None
        else trouble_with(num_shards, demand, growth.rooms, placement, where=GROWN)
    )


def rooms_at_most(groups: Iterable[Any], alive: Iterable[tuple[str, Room]], most: int) -> list[Room]:
    """Nodes that a cluster may have. groups : kinds of nodes, with `name`, `resources` and `max_count` (-1
    for any number).

    alive : (kind, resources) of the nodes that are there; those of a kind in `groups` are counted there. most
    : of a kind that matter.
    """
    groups = list(groups)
    names = {group.name for group in groups}
    found = [dict(resources) for kind, resources in alive if kind not in names]
    for group in groups:
        count = most if group.max_count < 0 else min(group.max_count, most)
        found += [dict(group.resources)] * count
    return found


def is_managed(report: Mapping[str, Any] | None) -> bool:
    """Whether the report of an autoscaler is of one that manages nodes; Ray runs one that only looks on
    everywhere else.
    """
    if not report:
        return False
    pending = [str(entry[1]) for entry in report.get("pending_nodes") or () if len(entry) > 1]
    kinds = [
        *(report.get("active_nodes") or ()),
        *(report.get("idle_nodes") or ()),
        *(report.get("pending_launches") or ()),
        *pending,
    ]
    return any(not OWN_TYPE.fullmatch(kind) for kind in kinds)


# -- Ray is asked ----------------------------------------------------------------------------------


def growth_of_cluster(params: RayParams, num_shards: int) -> Growth:
    """What Ray says about this cluster."""
    config = ray._private.state.state.get_cluster_config()
    if config is not None and config.node_group_configs:
        if params.label_selector:  # nobody says what labels the nodes to come will have
            return Growth(True)
        alive = [
            ((node.get("Labels") or {}).get("ray.io/node-group", ""), node["Resources"])
            for node in ray.nodes()
            if node["Alive"]
        ]
        return Growth(True, rooms_at_most(config.node_group_configs, alive, num_shards))
    deadline = time.monotonic() + min(FIRST_STATUS_SECONDS, params.timeout_s)
    while True:
        report, known = _report()
        if known or time.monotonic() >= deadline:
            return Growth(is_managed(report))
        time.sleep(GLANCE_SECONDS)


def _report() -> tuple[dict | None, bool]:
    """The last report of the autoscaler, and whether there is one at all.

    Both of Ray's autoscalers are asked.
    """
    from ray.experimental.internal_kv import (
        _internal_kv_get,
    )  # where the older one writes its status, for `ray status`

    status = _internal_kv_get(STATUS_KEY)
    if status:
        report = json.loads(status).get("autoscaler_report")
        if report is not None:
            return report, True
    state = _cluster_status()
    if state is None or not state.HasField("autoscaling_state"):
        return None, False
    return {
        "active_nodes": [node.ray_node_type_name for node in state.cluster_resource_state.node_states]
    }, True


def _cluster_status() -> Any:
    """What the newer autoscaler has told Ray, None where that cannot be read."""
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    try:
        client = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
        reply = GetClusterStatusReply()
        reply.ParseFromString(client.get_cluster_status(timeout_s=10))
    except (AttributeError, ray.exceptions.RayError) as error:
        logger.debug("Ray says nothing about its autoscaler: %s", error)
        return None
    return reply


def _is_infeasible(group: Any) -> bool:
    """Whether the autoscaler says that it can never place this group. The older one does not say so."""
    state = _cluster_status()
    if state is None:
        return False
    name = group.id.hex()
    return any(
        name in request.details for request in state.autoscaling_state.infeasible_gang_resource_requests
    )


def grow(
    num_shards: int,
    params: RayParams,
    demand: Mapping[str, float],
    trouble: str,
    patience: float,
    since: float,
) -> None:
    """Ask the autoscaler for nodes for so many shards, and wait until they are there. Says what it waits for.

    demand : of a shard. trouble : why it finds no place now, in words. patience : seconds to wait, counted
    from the (monotonic) time `since`. Raises ShardFailure when the nodes do not come in time.
    """
    labels = None if not params.label_selector else [dict(params.label_selector)] * num_shards
    group = placement_group(
        [dict(demand)] * num_shards, strategy=params.placement, bundle_label_selector=labels
    )
    said = time.monotonic()
    asked = f"{num_shards} shard{'s' if num_shards > 1 else ''} of " + " and ".join(
        in_words(*each) for each in demand.items()
    )
    logger.warning(
        "%s: the autoscaler is asked for nodes, waiting up to %.0f s: %s", asked, patience, trouble
    )
    try:
        while not group.wait(timeout_seconds=GLANCE_SECONDS):
            now = time.monotonic()
            if _is_infeasible(group):
                raise ValueError(f"{trouble}; its autoscaler says that it can never add nodes for {asked}")
            if now - since >= patience:
                raise ShardFailure(
                    f"{trouble}; its autoscaler was asked for nodes, and they did not come within "
                    f"{patience:.0f} seconds (timeout_s)"
                )
            if now - said >= SAY_SECONDS:
                said = now
                logger.warning("%s wait for nodes of the autoscaler, for %.0f s", asked, now - since)
    finally:
        # The shards ask once more, with the memory that the nodes turn out to have.
        remove_placement_group(group)
    logger.info("nodes for %s are there, after %.0f s", asked, time.monotonic() - since)
