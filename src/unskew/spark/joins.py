"""Skew joins: the rows of hot keys of one side are split, those of the other side replicated.

A row of the split side goes to one worker; a row of the other side goes to every worker that may
hold rows of its key, so each pair meets exactly once. For two streams, event times decide: a row of
the split side is routed by the plan that is valid at its time, and a row of the other side by all
plans that are valid at times that it can match. A new plan is valid from a time that no earlier row
can match, so no pair is lost or duplicated when a key gets hot or cools down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from unskew.murmur import targets
from unskew.spark.control.controller import Controller
from unskew.spark.control.planning import KeyHistory, TimedPlanController
from unskew.spark.placement.common_types import common_type
from unskew.spark.placement.keys import CASE, key_columns
from unskew.spark.placement.names import Names, quoted
from unskew.spark.placement.slots import slot_column
from unskew.spark.plans.schedule import BEGIN, Schedule
from unskew.spark.plans.split_plan import PlanFolder
from unskew.spark.routing.plan_source import read_plan
from unskew.spark.routing.planned import PlannedRoute, local_table, plan_key
from unskew.spark.runtime.files import located
from unskew.spark.runtime.places import operator_name
from unskew.spec import did_you_mean

if TYPE_CHECKING:
    from unskew.spark.control.hot_keys import Strategy
    from unskew.spark.routing.routing import Routing

KINDS = {
    "inner": ("left", "right"),
    "left": ("left",),
    "right": ("right",),
    "semi": ("left",),
    "anti": ("left",),
}
"""The sides that may be split, by kind of join; an outer join must split its preserved side."""
PRESERVED = {"left": ("left",), "right": ("right",), "anti": ("left",)}
"""The preserved sides, whose rows are in the result even if they match nothing."""
SPELLINGS = {
    "leftouter": "left",
    "rightouter": "right",
    "leftsemi": "semi",
    "leftanti": "anti",
    "outer": "full",
    "fullouter": "full",
}
ATOMIC = ("local",)
"""File systems that create a file only once, however many processes try."""


@dataclass(frozen=True)
class Times:
    """The event times of two streams, and the range in which they match.

    A pair matches if the row on the right is between ``least`` and ``most`` later than the row on
    the left.
    """

    left: str
    right: str
    least: timedelta
    most: timedelta

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError(
                f"within must be (least, most), got ({self.least}, {self.most}): put the smaller "
                "first"
            )

    @property
    def within(self) -> tuple[timedelta, timedelta]:
        """How much later a row on the right may be, at least and at most."""
        return self.least, self.most

    def reach_us(self, split: str) -> tuple[int, int]:
        """Return the times of the split side that a row of the other side matches, as offsets."""
        least, most = (round(time / timedelta(microseconds=1)) for time in (self.least, self.most))
        return (-most, -least) if split == "left" else (least, most)


@dataclass(frozen=True)
class Side:
    """One side of a join, with hidden column names that differ from those of the other side.

    Parameters
    ----------
    df
        The rows.
    columns
        The hidden names of the user's columns, in their order.
    keys
        The hidden names of the columns to join by, which have the same types on both sides.
    route
        The route of its rows.
    time
        The column of event times, if the join has a time range.
    """

    df: DataFrame
    columns: Sequence[str]
    keys: Sequence[str]
    route: PlannedRoute
    time: Column | None

    @property
    def at_us(self) -> Column:
        """The event time of a row in microseconds; without times, one later than all others."""
        if self.time is None:
            return F.lit(-BEGIN - 1)
        return F.unix_micros(self.time.cast("timestamp"))


@dataclass(frozen=True)
class SkewJoin:
    """A join of two sides with the same key columns.

    Parameters
    ----------
    left, right
        The sides.
    how
        The kind of join, one of the keys of `KINDS`.
    split
        The side whose hot keys are split.
    times
        The event times of two streams.
    columns
        The columns of the plain join: their hidden names and the user's names.
    """

    left: Side
    right: Side
    how: str
    split: str
    times: Times | None
    columns: Sequence[tuple[str, str]]

    @classmethod
    def of(
        cls,
        sides: dict[str, DataFrame],
        keys: Sequence[str],
        kind: str,
        split: str,
        n_workers: int,
        times: Times | None,
    ) -> SkewJoin:
        """Return a join of a kind and a split side that `kind_and_split` returned."""
        if not keys:
            raise ValueError("at least one key column is needed: give its name, as in 'user'")
        key_indices = {side: [_index(df, key, side) for key in keys] for side, df in sides.items()}
        names = Names.free_in(*sides.values())
        kinds = [
            common_type(
                sides["left"],
                sides["left"].schema[key_indices["left"][i]].dataType,
                sides["right"].schema[key_indices["right"][i]].dataType,
                key,
            )
            for i, key in enumerate(keys)
        ]
        hidden_sides = {
            side: _side(
                df if side in PRESERVED.get(kind, ()) else _with_keys(df, key_indices[side]),
                side,
                key_indices[side],
                kinds,
                names,
                n_workers,
                times,
            )
            for side, df in sides.items()
        }
        kept = "right" if kind == "right" else "left"
        columns = [
            (hidden_sides[kept].columns[i], sides[kept].columns[i]) for i in key_indices[kept]
        ]
        for side, df in sides.items():
            if side == "left" or kind not in ("semi", "anti"):
                rest = enumerate(zip(hidden_sides[side].columns, df.columns, strict=True))
                columns += [pair for i, pair in rest if i not in key_indices[side]]
        return cls(hidden_sides["left"], hidden_sides["right"], kind, split, times, columns)

    @property
    def _split(self) -> Side:
        """The side whose hot keys are split."""
        return self.left if self.split == "left" else self.right

    @property
    def _other(self) -> Side:
        """The side that is replicated."""
        return self.right if self.split == "left" else self.left

    def _joined(self, split: DataFrame, other: DataFrame, *slots: str) -> DataFrame:
        """Return the join of the two sides, with the columns of the plain join."""
        left, right = (split, other) if self.split == "left" else (other, split)
        # Spark hashes the columns in this order.
        pairs = [*zip(self.left.keys, self.right.keys, strict=True), *([slots] if slots else [])]
        condition = reduce(and_, (F.col(a) == F.col(b) for a, b in pairs))
        if self.times is not None:
            assert self.left.time is not None
            assert self.right.time is not None
            earliest, latest = (self.left.time + F.lit(by) for by in self.times.within)
            condition = condition & (self.right.time >= earliest) & (self.right.time <= latest)
        kind = {"semi": "leftsemi", "anti": "leftanti"}.get(self.how, self.how)
        joined = left.join(right, condition, kind)
        return joined.select(*(F.col(hidden).alias(name) for hidden, name in self.columns))

    def at_home(self, routing: Routing) -> DataFrame:
        """Return the plain join, with each key on the worker that Spark's hash chooses."""
        split = self._split
        place = routing.place(split.df, self._operator)
        observed = routing.with_slots(split.df, split.route, place).drop(split.route.slot)
        return self._joined(observed, self._other.df)

    def of_batches(self, strategy: Strategy) -> DataFrame:
        """Return the join of two tables, by a plan made from one scan of the split side."""
        split, other = self._split, self._other
        plan = split.route.learned(split.df, strategy)
        routed = split.route.by_table(split.df, local_table(split.df, plan, split.route.names))
        table = local_table(other.df, plan, other.route.names)
        looked_up = _looked_up(other, table)
        replicated = _replicated(other, looked_up, F.array_distinct(other.route.names("targets")))
        return self._joined(routed, replicated, self.left.route.slot, self.right.route.slot)

    def of_streams(self, routing: Routing, strategy: Strategy) -> DataFrame:
        """Return the join of two streams, or of a stream and a table, by plans that change."""
        place = routing.beside_checkpoint(self._operator)
        if located(place.root)[0].type_name not in ATOMIC:
            raise ValueError(
                "the two sides of a join agree on their plan through a file that is created only "
                f"once, which the file system of {place.root} cannot guarantee: put the checkpoint "
                "on a local or mounted file system"
            )
        split, other, times = self._split, self._other, self.times
        names = [name for _, name in self.columns[: len(split.keys)]]
        routing.save_first_plan(split.df.select(*split.keys).toDF(*names), place, strategy)
        reach = (0, 0) if times is None else times.reach_us(self.split)
        schedule = Schedule(place.root, 2 * max(map(abs, reach)))
        session, horizon = split.df.sparkSession, schedule.horizon_us
        terms = read_plan(session, place, split.route.names, horizon=horizon)

        def controller() -> Controller:
            history = KeyHistory(split.route.n_workers, routing.decay)
            folder = PlanFolder(place.plans)
            return TimedPlanController(strategy, folder, history, schedule, by_batch=times is None)

        also = f"unskew times of {routing.name} {place.owner}" if times else None
        routed = routing.observed_rows(
            split.route.by_terms(split.df, terms, split.at_us),
            split.route,
            controller,
            place,
            also=also,
            latest=split.at_us if times else None,
        )
        terms = read_plan(session, place, other.route.names, horizon=horizon)
        looked_up = _looked_up(other, terms)
        first, last = (other.at_us + F.lit(by) for by in reach)
        if also is not None:
            looked_up = looked_up.observe(also, F.max(last).alias("latest"))
        serving = other.route.names("serving")
        holding = F.filter(serving, lambda term: (term["since"] <= last) & (term["until"] > first))
        several = F.flatten(
            F.transform(holding, lambda term: F.coalesce(term["targets"], _at_home(other)))
        )
        replicated = _replicated(other, looked_up, F.array_distinct(several))
        return self._joined(routed, replicated, self.left.route.slot, self.right.route.slot)

    @property
    def _operator(self) -> str:
        keys = [name for _, name in self.columns[: len(self.left.keys)]]
        return operator_name("join", self.how, self.split, self.times, *keys)


def kind_and_split(sides: dict[str, DataFrame], how: str, split: str | None) -> tuple[str, str]:
    """Return the kind of a join, in one spelling, and the side that is split."""
    kind = how.lower().replace("_", "")
    kind = SPELLINGS.get(kind, kind)
    if kind not in KINDS:
        raise ValueError(
            f"{how} joins cannot be split, because rows of the replicated side that match nothing "
            f"would be returned once for each worker: use one of {', '.join(KINDS)}"
        )
    streams = [side for side, df in sides.items() if df.isStreaming]
    chosen = split or (streams[0] if len(streams) == 1 else KINDS[kind][0])
    if chosen not in KINDS[kind]:
        raise ValueError(
            f"split must be {' or '.join(map(repr, KINDS[kind]))} for how={kind!r}, got "
            f"{chosen!r}: use that side, or omit split"
        )
    if len(streams) == 1 and chosen not in streams:
        raise ValueError(
            f"split must be {streams[0]!r} for a join of a stream and a table, because only the "
            f"stream can be split, got {chosen!r}: use that side, or omit split"
        )
    return kind, chosen


def _index(df: DataFrame, name: str, side: str) -> int:
    """Return the index of the column with a name, resolved as in Spark's join by names."""
    if not isinstance(name, str):
        raise TypeError(
            f"on must be names of columns that both sides have, got {name!r}: make a column of an "
            "expression first, and give its name"
        )
    sensitive = (df.sparkSession.conf.get(CASE, "false") or "").lower() == "true"
    spelt = name if sensitive else name.casefold()
    matches = [i for i, c in enumerate(df.columns) if (c if sensitive else c.casefold()) == spelt]
    if len(matches) != 1:
        subject = f"{len(matches)} columns are" if matches else "no column is"
        raise ValueError(
            f"{subject} named {name!r} on the {side}{did_you_mean(name, df.columns)}: there are "
            f"{', '.join(df.columns)}; give a name that each side has exactly once"
        )
    return matches[0]


def _with_keys(df: DataFrame, keys: Sequence[int]) -> DataFrame:
    """Return the rows that have no null in their keys; the others match nothing.

    Spark drops such rows from a plain join too, and does so before it looks at event times: its
    watermark is that of the remaining rows.
    """
    columns = (F.col(quoted(df.columns[i])) for i in keys)
    return df.where(reduce(and_, (column.isNotNull() for column in columns)))


def _side(
    df: DataFrame,
    side: str,
    keys: Sequence[int],
    kinds: Sequence[DataType],
    names: Names,
    n_workers: int,
    times: Times | None,
) -> Side:
    """Return a side with hidden names, and with its keys cast to the common types."""
    key_columns(df, [quoted(df.columns[i]) for i in keys])  # refuses types without a hash
    columns = [names(f"{side}{i}") for i in range(len(df.columns))]
    time = None if times is None else F.col(columns[_index(df, getattr(times, side), side)])
    hidden, casts = df.toDF(*columns), {}
    key_names = []
    for i, kind in zip(keys, kinds, strict=True):
        same = df.schema[i].dataType.simpleString() == kind.simpleString()
        key_names.append(columns[i] if same else f"{columns[i]}_key")
        if not same:
            casts[key_names[-1]] = F.col(columns[i]).cast(kind)
    hidden = hidden.withColumns(casts) if casts else hidden
    grouping, own_names = [F.col(name) for name in key_names], Names(f"_{side}{names.tag}")
    route = PlannedRoute(grouping, grouping, n_workers, own_names, own_names("slot"))
    return Side(hidden, columns, key_names, route, time)


def _looked_up(side: Side, table: DataFrame) -> DataFrame:
    """Return the rows of a side, with the entries that a table has for their keys."""
    key_id = side.route.names("id")
    with_ids = side.df.withColumn(key_id, plan_key(side.route.columns))
    return with_ids.join(F.broadcast(table), key_id, "left")


def _replicated(side: Side, df: DataFrame, choices: Column) -> DataFrame:
    """Return each row once for each of its targets, or once at home if it has none."""
    route, target = side.route, side.route.names("target")
    at_least_home = F.when(F.size(choices) > 0, choices).otherwise(_at_home(side))
    exploded = df.withColumn(target, F.explode(at_least_home))
    slot = slot_column(route.grouping, F.col(target), route.n_workers)
    return exploded.withColumn(route.slot, slot).drop(target)


def _at_home(side: Side) -> Column:
    goals = F.lit(targets(side.route.n_workers).tolist())
    return F.array(F.element_at(goals, side.route.home + 1))
