"""What to do when shards are lost: decisions only, no cluster.

A shard is lost when its process or node died, or when it answers no ping in time. The coordinator replaces it
and brings the new one up to date, as long as the policy allows. A lost node is one event, however many shards
lived there; what a cloud takes back (a preempted node, by Ray's word) is counted apart from what fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


class ShardFailure(RuntimeError):
    """Shards (or the coordinator) were lost more often than `max_shard_failures` allows, or found no
    place.
    """


class ShardsLost(Exception):
    """Some shards did not answer a call.

    lost : cause by shard number. preempted : whether Ray says that a node was taken back. nodes : where they
    lived, by shard number, None where nobody knows. unstarted : those that had not answered anything yet.
    dead : nodes that Ray knows to be gone.
    """

    def __init__(
        self,
        lost: dict[int, str],
        preempted: bool = False,
        nodes: dict[int, str | None] | None = None,
        unstarted: Iterable[int] = (),
        dead: Iterable[str] = (),
    ):
        super().__init__("; ".join(f"{_name(shard)}: {cause}" for shard, cause in sorted(lost.items())))
        self.lost, self.preempted = lost, preempted
        self.nodes = dict.fromkeys(lost) if nodes is None else nodes
        self.unstarted, self.dead = frozenset(unstarted), frozenset(dead)

    def __reduce__(self):
        return (ShardsLost, (self.lost, self.preempted, self.nodes, self.unstarted, self.dead))


# Processes of a node that dies go one after another, and Ray learns of it by and by.
ONE_EVENT_SECONDS = 60.0
# A process that starts, imports and reads its rows may take so long on a busy machine; it is no loss until
# then. And so long Ray may go on starting processes on a node that is gone: they are lost before they have
# begun, by the same event.
START_SECONDS = 300.0


@dataclass
class LossEvent:
    """What was lost at once: shards (-1 is the coordinator), and the nodes they lived on.

    since, until : when it began and when the last recovery from it ended, in seconds of `time.time` (a policy
    travels between machines); `until` is None while a recovery is under way.
    """

    shards: set[int] = field(default_factory=set)
    nodes: set[str | None] = field(default_factory=set)
    since: float = 0.0
    until: float | None = None

    def covers(self, loss: ShardsLost, now: float) -> bool:
        """Whether a loss belongs to this event.

        A shard that had come up and is lost again is an event of its own, unless it had come up on the very
        node that is gone. One that is lost again before it has begun belongs to the recovery under way, as
        long as starting may take: a run whose shards never come up must end.
        """
        if not self.shards:
            return False
        again = self.shards & set(loss.lost)
        came_up = again - loss.unstarted
        if any(loss.nodes.get(shard) not in self.nodes & loss.dead for shard in came_up):
            return False
        if again and now - self.since >= (ONE_EVENT_SECONDS if came_up else START_SECONDS):
            return False
        if self.until is None:
            return True
        nodes = set(loss.nodes.values())
        return now - self.until < ONE_EVENT_SECONDS and None not in nodes and nodes <= self.nodes

    def add(self, loss: ShardsLost) -> None:
        """A loss that this event covers, or that it begins with. A recovery from it is under way then."""
        self.shards |= set(loss.lost)
        self.nodes |= set(loss.nodes.values())
        self.until = None


@dataclass
class FailurePolicy:
    """Counts failures of a run. most, most_preemptions : events it may survive, -1 for any number.

    failures : losses so far, by shard number, or -1 for the coordinator. events, preemptions : so far; an
    event is all that was lost in one recovery, and either one or the other. news : what happened since it was
    last asked for, in words. event : the last one.
    """

    most: int
    most_preemptions: int = -1
    failures: Counter = field(default_factory=Counter)
    events: int = 0
    preemptions: int = 0
    last_cause: str = ""
    news: list[str] = field(default_factory=list)
    event: LossEvent = field(default_factory=LossEvent)

    @property
    def total(self) -> int:
        return sum(self.failures.values())

    def lose(self, loss: ShardsLost, now: float) -> None:
        """Count a loss, as an event of its own or as part of the last one.

        Raises ShardFailure when the run may not go on.
        """
        another = not self.event.covers(loss, now)
        if another:
            self.event = LossEvent(since=now)
        self.event.add(loss)
        self.note(loss.lost, loss.preempted, another)

    def forgive(self, loss: ShardsLost, now: float) -> None:
        """A loss from before this run: it is not counted, nor is what goes the same way while it is made
        good.
        """
        self.event = LossEvent(since=now)
        self.event.add(loss)

    def recovered(self, now: float) -> None:
        """All that was lost has been replaced and is at work again."""
        if self.event.shards:
            self.event.until = now

    def note(self, lost: dict[int, str], preempted: bool = False, another: bool = True) -> None:
        """Count the loss of shards. Raises ShardFailure when the run may not go on.

        preempted : a node was taken back. Other shards may be lost along with it for other reasons as it
        seems; it is still one event.
        another : False for shards whose loss belongs to the event that was noted last.
        """
        for shard, cause in sorted(lost.items()):
            self.failures[shard] += 1
            self.last_cause = cause
            taken = "its node was preempted: " if preempted else ""
            self.news.append(f"{_name(shard)} lost ({taken}{cause or 'unknown cause'}), replaced")
        if not another:
            return
        if preempted:
            self.preemptions += 1
        else:
            self.events += 1
        limits = (
            ("max_shard_failures", self.events, self.most),
            ("max_preemptions", self.preemptions, self.most_preemptions),
        )
        for name, count, most in limits:
            if 0 <= most < count:
                raise ShardFailure(
                    f"lost {self._who()}, more than {name}={most} allows; the last cause: "
                    f"{self.last_cause or 'unknown'}"
                )

    def _who(self) -> str:
        who = ", ".join(
            f"{_name(shard)} {count} time{'s' if count > 1 else ''}"
            for shard, count in sorted(self.failures.items())
        )
        if self.total == self.events:
            return who
        counted = [(self.events, "event"), (self.preemptions, "preemption")]
        parts = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in counted if count]
        return f"{who} ({', '.join(parts)})"

    def take_news(self) -> list[str]:
        """The news, which are none afterwards."""
        taken, self.news = self.news, []
        return taken


def _name(shard: int) -> str:
    return "the coordinator" if shard < 0 else f"shard {shard}"
