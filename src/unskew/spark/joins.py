"""Skew joins: the rows of hot keys of one side are split, those of the other side replicated.

A row of the split side goes to one worker; a row of the other side to every worker that rows of its
key may be on, so each pair meets once. Between two streams, times decide: a row of the split side
goes by the plan that holds for its time, and one of the other side by all plans that hold for times
that it can match. A new plan holds from a time on that no row so far can match, so a key that gets
hot or cools down loses and doubles nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unskew.murmur import targets
from unskew.spark.files import located
from unskew.spark.keys import key_columns
from unskew.spark.observed import DRAWN, ID, LATEST
from unskew.spark.placement import SLOT, slot_column
from unskew.spark.plan_source import SERVING, TARGETS, read_terms
from unskew.spark.planned import PlannedRoute, local_table, plan_key
from unskew.spark.planning import Memory, TimedPlanning
from unskew.spark.plans import PlanFolder
from unskew.spark.schedule import BEGIN, Schedule

if TYPE_CHECKING:
    from unskew.spark.hot_keys import Strategy
    from unskew.spark.routing import Routing

KINDS = {
    "inner": ("left", "right"),
    "left": ("left",),
    "right": ("right",),
    "semi": ("left",),
    "anti": ("left",),
}
"""The sides that may be split: one whose rows are kept though they match nothing must be."""
SPELLINGS = {
    "leftouter": "left",
    "rightouter": "right",
    "leftsemi": "semi",
    "leftanti": "anti",
    "outer": "full",
    "fullouter": "full",
}
ATOMIC = ("local",)
"""File systems that create a file once only, however many try."""


@dataclass(frozen=True)
class Times:
    """The event times of two streams, and which of them match.

    A pair matches if the time of the row on the right is that of the row on the left and between
    ``least`` and ``most`` more.
    """

    left: str
    right: str
    least: timedelta
    most: timedelta

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError(f"within must be (least, most), got ({self.least}, {self.most})")

    def matches(self) -> Column:
        """Return whether the times of a row of both match."""
        left, right = F.col(f"left.{self.left}"), F.col(f"right.{self.right}")
        return (right >= left + F.lit(self.least)) & (right <= left + F.lit(self.most))

    def reach_us(self, split: str) -> tuple[int, int]:
        """Return which times of the split side a row of the other one matches, from its own on."""
        least, most = (round(time / timedelta(microseconds=1)) for time in (self.least, self.most))
        return (-most, -least) if split == "left" else (least, most)


@dataclass(frozen=True)
class SkewJoin:
    """One join of two sides with the same key columns.

    Parameters
    ----------
    keys
        Columns of both sides.
    how
        As in Spark.
    split
        The side whose hot keys are split.
    n_workers
        Shuffle partitions.
    """

    keys: Sequence[str]
    how: str
    split: str
    n_workers: int

    @classmethod
    def of(
        cls,
        sides: dict[str, DataFrame],
        keys: Sequence[str],
        how: str,
        split: str | None,
        n_workers: int,
    ) -> SkewJoin:
        """Return a join, if it can be had."""
        kind = how.lower().replace("_", "")
        kind = SPELLINGS.get(kind, kind)
        if kind not in KINDS:
            raise ValueError(
                f"{how} joins cannot be split, as rows of the replicated side that match nothing "
                f"would come once for each worker: use one of {', '.join(KINDS)}"
            )
        streams = [side for side, df in sides.items() if df.isStreaming]
        chosen = split or (streams[0] if len(streams) == 1 else KINDS[kind][0])
        if chosen not in KINDS[kind]:
            raise ValueError(f"a {kind} join can split its {KINDS[kind][0]} side, not {chosen!r}")
        if len(streams) == 1 and chosen not in streams:
            raise ValueError(f"of a stream and a table the stream is split, so not the {chosen}")
        for df in sides.values():
            key_columns(df, keys)
        common = {*sides["left"].columns} & {*sides["right"].columns} - {*keys}
        if common:
            raise ValueError(f"both sides have {', '.join(sorted(common))}: rename it on one side")
        return cls(keys, kind, chosen, n_workers)

    @property
    def other(self) -> str:
        """The side that is replicated."""
        return "right" if self.split == "left" else "left"

    def route(self, df: DataFrame) -> PlannedRoute:
        """Return how rows of a side are routed."""
        columns = key_columns(df, self.keys)
        return PlannedRoute(columns, columns, self.n_workers)

    def replicated(self, df: DataFrame, choices: Column) -> DataFrame:
        """Return rows, each with as many slots as it has targets, one if none."""
        route = self.route(df)
        goals = F.lit(targets(self.n_workers).tolist())
        at_home = F.array(F.element_at(goals, route.home + 1))
        some = F.when(F.size(choices) > 0, choices).otherwise(at_home)
        exploded = df.withColumn(TARGETS, F.explode(some))
        slot = slot_column(route.grouping, F.col(TARGETS), self.n_workers)
        return exploded.withColumn(SLOT, slot).drop(TARGETS)

    def joined(self, sides: dict[str, DataFrame], times: Times | None) -> DataFrame:
        """Return the join of sides that have slots, with the columns of the plain one."""
        left, right = sides["left"].alias("left"), sides["right"].alias("right")
        met = F.lit(True)
        for name in (*self.keys, SLOT):  # in the order in which Spark hashes them
            same = F.col(f"left.{name}") == F.col(f"right.{name}")
            met = same if name == self.keys[0] else met & same
        met = met if times is None else met & times.matches()
        kind = {"semi": "leftsemi", "anti": "leftanti"}.get(self.how, self.how)
        found = left.join(right, met, kind)
        kept = "right" if self.how == "right" else "left"
        chosen = [F.col(f"{kept}.{key}") for key in self.keys]
        for side, df in sides.items():
            if side == "left" or self.how not in ("semi", "anti"):
                rest = (name for name in df.columns if name not in (*self.keys, SLOT))
                chosen += [F.col(f"{side}.{name}") for name in rest]
        return found.select(*chosen)

    def at_home(
        self, sides: dict[str, DataFrame], times: Times | None, routing: Routing
    ) -> DataFrame:
        """Return the plain join: each key on the worker that Spark's hash chooses."""
        # Zero, but not to the optimizer: else it would leave the slot out of what it hashes.
        zero = F.hash(*self.keys).bitwiseAND(F.lit(0))
        split = routing.route(sides[self.split], *self.keys).withColumn(SLOT, zero)
        found = {self.split: split, self.other: sides[self.other].withColumn(SLOT, zero)}
        return self.joined({side: found[side] for side in sides}, times)

    def of_batches(self, sides: dict[str, DataFrame], strategy: Strategy) -> DataFrame:
        """Return the join of two tables, by a look at the side that is split."""
        split, other = sides[self.split], sides[self.other]
        route = self.route(split)
        table = local_table(split, route.learned(split, strategy))
        looked_up = other.withColumn(ID, plan_key(self.route(other).columns)).join(
            F.broadcast(table), ID, "left"
        )
        distinct = F.array_distinct(TARGETS)
        found = {
            self.split: route.by_table(split, table).drop(ID, DRAWN),
            self.other: self._dropped(looked_up, distinct, ID),
        }
        return self.joined({side: found[side] for side in sides}, None)

    def of_streams(
        self,
        sides: dict[str, DataFrame],
        times: Times | None,
        routing: Routing,
        strategy: Strategy,
    ) -> DataFrame:
        """Return the join of two streams, or of a stream and a table, by plans that change."""
        root = routing._beside_checkpoint()
        if located(root)[0].type_name not in ATOMIC:
            raise ValueError(
                f"the two sides of a join agree on their plan by a file that is created once, and "
                f"{root} cannot do that: put the checkpoint on a local or mounted file system"
            )
        reach = (0, 0) if times is None else times.reach_us(self.split)
        schedule = Schedule(root, 2 * max(map(abs, reach)))
        folder, split, other = PlanFolder(f"{root}/plans"), sides[self.split], sides[self.other]
        route = self.route(split)
        terms = read_terms(split.sparkSession, folder.root, schedule)
        at = {
            side: F.lit(-BEGIN - 1)
            if times is None
            else F.unix_micros(F.col(getattr(times, side)).cast("timestamp"))
            for side in sides
        }
        guide = TimedPlanning(
            strategy,
            folder,
            Memory(self.n_workers, routing.decay),
            schedule,
            by_batch=times is None,
        )
        also = f"unskew times of {routing.name} {uuid.uuid4().hex}"
        chosen = route.by_terms(split, terms, at[self.split])
        if times is not None:
            chosen = chosen.withColumn(LATEST, at[self.split])
        chosen = routing._watched(chosen, route, guide, root, also if times else None)
        looked_up = other.withColumn(ID, plan_key(self.route(other).columns)).join(
            F.broadcast(terms), ID, "left"
        )
        first, last = (at[self.other] + F.lit(reach[0]), at[self.other] + F.lit(reach[1]))
        if times is not None:
            looked_up = looked_up.observe(also, F.max(last).alias("latest"))
        holding = F.filter(SERVING, lambda term: (term["since"] <= last) & (term["until"] > first))
        goals = F.lit(targets(self.n_workers).tolist())
        at_home = F.array(F.element_at(goals, self.route(other).home + 1))
        several = F.flatten(F.transform(holding, lambda term: F.coalesce(term["targets"], at_home)))
        found = {
            self.split: chosen.drop(ID, DRAWN, LATEST),
            self.other: self._dropped(looked_up, F.array_distinct(several), ID, SERVING),
        }
        return self.joined({side: found[side] for side in sides}, times)

    def _dropped(self, df: DataFrame, choices: Column, *names: str) -> DataFrame:
        chosen = df.withColumn(TARGETS, choices)
        return self.replicated(chosen, F.col(TARGETS)).drop(*names)
