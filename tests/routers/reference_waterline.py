"""Waterline again: slow, in plain Python, with lists of rows (key, worker, amount)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from routers.primitives import Counters, Reference

Row = tuple[int, int, float]


def total(numbers: Iterable[float]) -> float:
    """Sum from left to right; Python's own sum rounds otherwise."""
    result = 0.0
    for number in numbers:
        result += number
    return result


def water_level(amount: float, rest: Sequence[float]) -> float:
    heights = sorted(rest)
    for k in range(1, len(heights) + 1):
        level = total([amount, *heights[:k]]) / k
        if k == len(heights) or heights[k] >= level:
            return level
    raise AssertionError


class Planning:
    """One plan for workers of equal capacity, where pairs cost nothing and are kept."""

    def __init__(self, amounts: list[float], homes: list[int], rest: list[float]) -> None:
        self.amounts, self.homes, self.rest, self.n = amounts, homes, rest, len(rest)
        self.level = max(water_level(total(amounts), rest), *rest)

    def pairs(self, weighted: list[Row]) -> list[Row]:
        """Return the rows with amounts for weights, and the other keys at home."""
        known = {key for key, _, _ in weighted}
        rows = [
            (key, worker, self.amounts[key] * w / total(v for k, _, v in weighted if k == key))
            for key, worker, w in weighted
        ]
        alone = [k for k in range(len(self.amounts)) if k not in known]
        return merged(rows + [(k, self.homes[k], self.amounts[k] * 1.0 / 1.0) for k in alone])

    def loads(self, rows: list[Row]) -> list[float]:
        return [
            self.rest[w] + total(amount for _, worker, amount in rows if worker == w)
            for w in range(self.n)
        ]

    def plan(self, current: list[Row], tolerance: float) -> list[Row]:
        height = max(self.loads(current))
        if height <= (1 + tolerance) * self.level:
            return current
        bound = (1 + tolerance / 2) * self.level
        found = self.shed(self.share(current, bound), bound, keep=True)
        if len(found) - len({key for key, _, _ in found}) > 4 * self.n:
            whole = []
            for key in sorted({key for key, _, _ in current}):
                mine = [row for row in current if row[0] == key]
                whole.append((key, max(mine, key=lambda row: row[2])[1], self.amounts[key]))
            found = self.shed(whole, bound, keep=False)
        better = max(self.loads(found)) <= height - tolerance / 2 * self.level
        return found if better else current

    def share(self, rows: list[Row], bound: float) -> list[Row]:
        loads, amounts = self.loads(rows), [amount for _, _, amount in rows]
        for _ in range(8):
            of = {key: [i for i, row in enumerate(rows) if row[0] == key] for key, _, _ in rows}
            high = [
                key
                for key, mine in of.items()
                if len(mine) > 1 and any(loads[rows[i][1]] > bound for i in mine)
            ]
            for key in sorted(high):
                others = [loads[rows[i][1]] - amounts[i] for i in of[key]]
                level = water_level(self.amounts[key], others)
                for i, other in zip(of[key], others, strict=True):
                    amounts[i] = max(0.0, level - other)
                    loads[rows[i][1]] = other + amounts[i]
        return [(key, w, amount) for (key, w, _), amount in zip(rows, amounts, strict=True)]

    def shed(self, rows: list[Row], bound: float, keep: bool) -> list[Row]:
        loads = self.loads(rows)
        stay, pieces = list(rows), []
        slack = bound - self.level
        for worker in [w for w in range(self.n) if loads[w] > bound]:
            excess = loads[worker] - self.level
            mine = sorted((amount, key) for key, w, amount in rows if w == worker)
            while mine and excess > slack:
                smaller = [row for row in mine if row[0] < excess]
                if mine[-1][0] <= excess:
                    amount, key = chosen = mine[-1]
                elif not keep and smaller and smaller[-1][0] >= excess - slack:
                    amount, key = chosen = smaller[-1]
                else:
                    (size, key), amount = mine[-1], excess
                    stay[stay.index((key, worker, size))] = (key, worker, size - amount)
                    pieces.append((amount, key))
                    loads[worker] -= amount
                    break
                mine.remove(chosen)
                stay.remove((key, worker, amount))
                pieces.append((amount, key))
                excess -= amount
                loads[worker] -= amount
        if not pieces or not any(load < self.level for load in loads):
            return rows
        pieces.sort(key=lambda piece: (-piece[0], piece[1]))
        return merged(stay + self.placed(pieces, loads, slack))

    def placed(
        self, pieces: list[tuple[float, int]], loads: list[float], slack: float
    ) -> list[Row]:
        rooms = {w: self.level - load for w, load in enumerate(loads) if self.level - load > 0}
        rows = []
        for piece, key in pieces:
            amount, home = piece, self.homes[key]
            while amount > 0:
                fitting = [(free, w) for w, free in rooms.items() if free >= amount - slack]
                if rooms.get(home, 0.0) > 0 and amount <= rooms[home] + slack:
                    worker, fits = home, True
                elif fitting:
                    worker, fits = min(fitting)[1], True
                else:
                    worker, fits = max((free, w) for w, free in rooms.items())[1], False
                free = rooms.pop(worker)
                part = amount if fits or not rooms else max(0.0, min(amount, free))
                if free - part > 0 or not rooms:
                    rooms[worker] = free - part
                if part > 0:
                    rows.append((key, worker, part))
                amount -= part
        return rows


def merged(rows: list[Row]) -> list[Row]:
    pairs = sorted({(key, worker) for key, worker, _ in rows})
    return [(k, w, total(a for key, x, a in rows if (key, x) == (k, w))) for k, w in pairs]


class Waterline(Reference):
    def __init__(
        self,
        n_workers: int,
        *,
        capacity: int | None = None,
        epoch: int | None = None,
        alpha: float = 0.8,
        tolerance: float = 0.01,
        alarm: int = 250,
        **parameters: Any,
    ) -> None:
        super().__init__(n_workers, **parameters)
        n = n_workers
        self.counters = Counters(max(1000, min(100 * n, 50_000)) if capacity is None else capacity)
        self.epoch = max(20_000, 1000 * n) if epoch is None else epoch
        self.alpha, self.tolerance, self.alarm = alpha, tolerance, alarm
        self.first = max(500, 10 * n)
        self.length, self.seen, self.alarmed = min(self.first, self.epoch), 0, False
        self.now: dict[int, float] = {}
        self.past: dict[int, float] = {}
        self.homes_now, self.homes_past = [0.0] * n, [0.0] * n
        self.starts: list[float] = [0] * n
        self.places: dict[int, list[list[Any]]] = {}
        self.turns: dict[int, tuple[float, int]] = {}

    def choose(self, key: int) -> int:
        if self.seen == self.length:
            self.end_epoch()
        home = self.choices(key, 1)[0]
        gone = self.counters.count(key)
        if gone is not None:
            self.places.pop(gone, None)
            del self.now[gone], self.past[gone]
        self.past.setdefault(key, 0.0)
        self.now[key] = self.now.get(key, 0.0) + 1.0
        self.homes_now[home] += 1.0
        worker = home
        if key in self.places:
            place = self.places[key][self.turn(key) if len(self.places[key]) > 1 else 0]
            place[1] += 1.0
            worker = place[0]
        self.seen += 1
        if (self.loads[worker] + 1 - self.starts[worker] - self.alarm) * self.n > self.seen:
            self.length, self.alarmed = self.seen, True
        return worker

    def turn(self, key: int) -> int:
        loads = [self.loads[worker] for worker, _ in self.places[key]]
        level, rank = self.turns[key]
        for at in range(rank, len(loads)):
            if loads[at] <= level:
                self.turns[key] = (level, at)
                return at
        self.turns[key] = (min(loads) + len(loads) // 8, 0)
        return loads.index(min(loads))

    def end_epoch(self) -> None:
        for key, count in self.now.items():
            self.past[key] = (0.0 if self.alarmed else self.past[key]) + count
        for w, count in enumerate(self.homes_now):
            self.homes_past[w] = (0.0 if self.alarmed else self.homes_past[w]) + count
        self.plan()
        if self.length >= self.epoch:
            self.past = {key: count * self.alpha for key, count in self.past.items()}
            self.homes_past = [count * self.alpha for count in self.homes_past]
            for places in self.places.values():
                for place in places:
                    place[1] *= self.alpha
        self.now = dict.fromkeys(self.now, 0.0)
        self.homes_now = [0.0] * self.n
        least = sum(map(int, self.loads)) // self.n - 150
        self.loads = [max(load, least) for load in self.loads]
        self.starts = list(self.loads)
        self.length = min(self.first if self.alarmed else 2 * self.length, self.epoch)
        self.seen, self.alarmed = 0, False

    def plan(self) -> None:
        fair = total(self.homes_past) / self.n
        floor = max(10.0, 1 / 500 * fair)
        keys = [
            key
            for key in self.counters.keys
            if self.past[key] >= floor or (key in self.places and self.past[key] >= 1)
        ]
        amounts = [self.past[key] for key in keys]
        homes = [self.choices(key, 1)[0] for key in keys]
        mean = sum(map(int, self.loads)) / self.n
        rest = []
        for w, count in enumerate(self.homes_past):
            known = total(a for a, home in zip(amounts, homes, strict=True) if home == w)
            above = 3.0 * (self.loads[w] - mean)
            rest.append(count - known + min(max(above, -0.1 * fair), 0.1 * fair))
        planning = Planning(amounts, homes, rest)
        weighted = [
            (i, worker, sent + 1.0)
            for i, key in enumerate(keys)
            for worker, sent in self.places.get(key, [])
        ]
        current = planning.pairs(weighted)
        found = planning.plan(current, self.tolerance + 1.0 / math.sqrt(fair))
        if found is not current:
            self.places = {}
            for i, key in enumerate(keys):
                mine = [[worker, amount] for k, worker, amount in found if k == i]
                if len(mine) > 1 or mine[0][0] != homes[i]:
                    self.places[key] = mine
                    self.turns[key] = (-1, 0)
