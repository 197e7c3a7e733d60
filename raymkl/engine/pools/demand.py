"""What a shard asks for and what places have: whether a request fits, in numbers and in words. No cluster is
asked here.

A room is what a place for shards has, by resource: a node, or a bundle of somebody's placement group. Shards
are whole: a node of 3 CPUs holds one shard of 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..params import RayParams
from ..plan import DEFAULT_SHARE

Room = Mapping[str, float]
# Resources are counted in fractions.
ROUND_OFF = 1e-9


def demand_of(params: RayParams, memory: int = 0) -> dict[str, float]:
    """What each shard asks for. memory : bytes that it reserves."""
    asked = {"CPU": params.cpus_per_shard, **(params.resources or {})}
    return {**asked, "memory": memory} if memory else asked


def holds(room: Room, demand: Room) -> int:
    """Whole shards that a room holds."""
    return min(int((room.get(name, 0.0) + ROUND_OFF) / each) for name, each in demand.items())


def whole_shards(
    rooms: Sequence[Room], demand: Room, placement: str = "SPREAD", taken: float = 0.0, inside: bool = False
) -> int:
    """Shards that rooms hold, `taken` CPUs being in use already.

    inside : the rooms are bundles of somebody's placement group, which has its own placement; ours means
    nothing there.
    """
    per_room = [holds(room, demand) for room in rooms]
    if placement == "STRICT_SPREAD" and not inside:
        return sum(count > 0 for count in per_room)
    if placement == "STRICT_PACK" and not inside:
        return max(per_room, default=0)
    left = sum(room.get("CPU", 0.0) for room in rooms) - taken
    return min(sum(per_room), int((left + ROUND_OFF) / demand["CPU"]))


def trouble_with(
    num_shards: int,
    demand: Room,
    rooms: Sequence[Room],
    placement: str = "SPREAD",
    taken: float = 0.0,
    inside: bool = False,
    where: str = "the Ray cluster",
) -> str | None:
    """Why the shards can find no place in these rooms, or None.

    taken, inside : see `whole_shards`. where : what the rooms are.
    """
    where = "the placement group that this fit runs in" if inside else where
    kind = "bundle" if inside else "node"
    for name in sorted(demand, key=lambda name: name != "CPU"):
        words = _trouble_with_one(
            name, num_shards, demand[name], rooms, taken if name == "CPU" else 0.0, where, kind
        )
        if words is not None:
            return words
    fit = whole_shards(rooms, demand, placement, taken, inside)
    if num_shards > fit:
        each, cpus = demand["CPU"], [room.get("CPU", 0.0) for room in rooms]
        sizes = ", ".join(f"{room:g}" for room in sorted(cpus, reverse=True)[:8]) + (
            ", ..." if len(cpus) > 8 else ""
        )
        others = "".join(f" and {in_words(name, amount)}" for name, amount in demand.items() if name != "CPU")
        return (
            f"{_shards(num_shards)} of {each:g} CPU{others} need {num_shards * each:g} CPUs, and {where} has "
            f"{kind}s of {sizes} CPUs, "
            f"which hold {fit} whole "
            f"shard{'s' if fit != 1 else ''}{'' if inside else f' with placement={placement!r}'}; "
            "ask for fewer or smaller shards"
        )
    return None


def _trouble_with_one(
    name: str, num_shards: int, each: float, rooms: Sequence[Room], taken: float, where: str, kind: str
) -> str | None:
    """The same for one resource, looked at alone."""
    there = [room.get(name, 0.0) for room in rooms]
    largest, wanted, left = max(there, default=0.0), num_shards * each, sum(there) - taken
    if name == "memory" and each > largest + ROUND_OFF:
        return (
            f"memory_per_shard={each:.0f} bytes is more than any {kind} of {where} has: the largest one has "
            f"{int(largest)} bytes; "
            "ask for less memory per shard and use more shards"
        )
    plural = "CPUs" if name == "CPU" else "bytes of memory" if name == "memory" else repr(name)
    asked = (
        f"{_shards(num_shards)} of {in_words(name, each)} need "
        f"{wanted:{'.0f' if name == 'memory' else 'g'}} {plural}"
    )
    if wanted > left + ROUND_OFF:
        used = f" ({sum(there):g}, of which this task holds {taken:g})" if taken else ""
        has = f"{left:.0f}" if name == "memory" else f"{left:g}"
        less = (
            "fewer CPUs per shard"
            if name == "CPU"
            else "less memory per shard"
            if name == "memory"
            else f"less {name!r} per shard"
        )
        return f"{asked}, {where} has {has}{used}; ask for fewer shards or {less}"
    if each > largest + ROUND_OFF:
        return (
            f"{asked}, each on one {kind}, and the largest {kind} of {where} has {largest:g}; use smaller "
            "shards"
        )
    return None


def _shards(count: int) -> str:
    return f"{count} shard{'s' if count > 1 else ''}"


def in_words(name: str, amount: float) -> str:
    """An amount of a resource."""
    if name == "memory":
        return f"{amount:.0f} bytes"
    return f"{amount:g} {name if name == 'CPU' else repr(name)}"


def memory_to_reserve(
    num_shards: int, params: RayParams, rooms: Sequence[Room], row_bytes: int = 0, inside: bool = False
) -> int:
    """Bytes that each of the shards reserves, so that Ray does not fill a node until something is killed
    there.

    That is `memory_per_shard`, which holds caches and gradients, and what its rows take beside it where that
    fits as well. Without a budget it is the share of a node that caches are planned for: never so much that
    shards which find CPUs would find no memory. Somebody's placement group may have none to give; nothing is
    reserved then.
    """
    plain = demand_of(params)

    def fits(memory: int) -> bool:
        return num_shards <= whole_shards(rooms, demand_of(params, memory), params.placement, 0.0, inside)

    if params.memory_per_shard is not None:
        least = int(params.memory_per_shard)
        if fits(least + row_bytes):
            return least + row_bytes
        return 0 if inside and not fits(least) else least
    counts = [(room.get("memory", 0.0), min(holds(room, plain), num_shards)) for room in rooms]
    counts = [(memory, count) for memory, count in counts if count]
    if not counts:
        return 0
    share = min(int(DEFAULT_SHARE * memory / count) for memory, count in counts)
    with_rows = share + row_bytes
    return with_rows if share and all(count * with_rows <= memory for memory, count in counts) else share


def matches(labels: Mapping[str, str], selector: Mapping[str, str] | None) -> bool:
    """Whether a node's labels are what a selector asks for, in Ray's words: `value`, `!value`, `in(a, b)`,
    `!in(a, b)`.
    """
    for key, asked in (selector or {}).items():
        negated, wanted = asked.startswith("!"), asked.removeprefix("!")
        several = wanted.startswith("in(") and wanted.endswith(")")
        values = {value.strip() for value in wanted[3:-1].split(",")} if several else {wanted}
        if (labels.get(key) in values) == negated:
            return False
    return True
