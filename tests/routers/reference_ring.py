"""The routers on a hash ring again, as in `reference`."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

from routers.primitives import GOLDEN, Counters, Reference, least, mix

RING_SALT = 0x2545F4914F6CDD1D


class Consistent(Reference):
    def __init__(
        self,
        n_workers: int,
        *,
        capacities: Sequence[float] | None = None,
        nodes: int = 128,
        **parameters: Any,
    ) -> None:
        super().__init__(n_workers, **parameters)
        self.speeds = [1.0] * n_workers if capacities is None else list(capacities)
        self.nodes = nodes
        self.workers_changed()

    @property
    def active(self) -> int:
        return sum(speed > 0 for speed in self.speeds)

    def add_worker(self, capacity: float = 1.0) -> None:
        self.speeds.append(capacity)
        self.loads.append(0)
        self.workers_changed()

    def remove_worker(self, worker: int) -> None:
        self.speeds[worker] = 0.0
        self.workers_changed()

    def workers_changed(self) -> None:
        self.ring = sorted(
            (mix((worker * 2**32 + i + 1) * GOLDEN % 2**64, self.seed ^ RING_SALT), worker)
            for worker, speed in enumerate(self.speeds)
            for i in range(self.points(speed))
        )
        self.orders: dict[int, list[int]] = {}

    def points(self, speed: float) -> int:
        return max(1, round(speed * self.nodes)) if speed > 0 else 0

    def clockwise(self, key: int, d: int) -> list[int]:
        """Return the first d distinct workers from the key on."""
        if key not in self.orders:
            at = bisect.bisect_left(self.ring, (mix(key, self.hash_seed), -1))
            walk = [worker for _, worker in self.ring[at:] + self.ring[:at]]
            self.orders[key] = list(dict.fromkeys(walk))
        return self.orders[key][:d]

    def choose(self, key: int) -> int:
        return self.clockwise(key, 1)[0]


class Fish(Consistent):
    def __init__(
        self,
        n_workers: int,
        *,
        counters: int = 1000,
        epoch: int = 1000,
        alpha: float = 0.2,
        theta: float | None = None,
        rate: float = 1000.0,
        interval_s: float = 10.0,
        service_s: float | None = None,
        nodes: int = 64,
        **parameters: Any,
    ) -> None:
        self.one_s, self.rate, self.interval_s = service_s, rate, interval_s
        self.waits: list[float] = []
        self.costs: list[float] = []
        self.sampled_s: list[float] = []
        self.most: dict[int, int] = {}
        super().__init__(n_workers, nodes=nodes, **parameters)
        self.theta = 1.0 / (4 * n_workers) if theta is None else theta
        self.counters, self.epoch, self.alpha = Counters(counters), epoch, alpha
        self.interval_records = max(1, round(interval_s * rate))
        self.seen = self.arrived = 0
        self.minimum = 2

    def points(self, speed: float) -> int:
        return self.nodes if speed > 0 else 0

    def workers_changed(self) -> None:
        super().workers_changed()
        one_s = self.one_s if self.one_s is not None else sum(self.speeds) / self.rate
        service_s = [one_s / (speed if speed > 0 else 1.0) for speed in self.speeds]
        service_s[: len(self.sampled_s)] = self.sampled_s
        self.set_service(service_s)

    def observe_service(self, service_s: Sequence[float]) -> None:
        self.sampled_s = list(service_s)
        self.set_service(service_s)

    def set_service(self, service_s: Sequence[float]) -> None:
        """Set P_w; records that wait go on waiting, in units of the fastest worker's time."""
        records = [wait / cost for wait, cost in zip(self.waits, self.costs, strict=True)]
        records += [0.0] * (len(service_s) - len(records))
        unit = min(p for p, speed in zip(service_s, self.speeds, strict=True) if speed > 0)
        self.waits = [c * p / unit for c, p in zip(records, service_s, strict=True)]
        self.costs = [p / unit for p in service_s]
        self.rates = [self.interval_s / p for p in service_s]
        self.credits = [0.0] * len(service_s)

    def drain(self, worker: int) -> None:
        credit = self.credits[worker] + self.rates[worker]
        done = math.floor(credit)
        left = self.waits[worker] - done * self.costs[worker]
        self.waits[worker] = max(0.0, left)
        self.credits[worker] = credit - done if left > 0 else 0.0

    def floor(self) -> float:
        return self.theta * max(self.counters.total, float(self.epoch))

    def choose(self, key: int) -> int:
        if self.seen == self.epoch:
            self.minimum, self.seen = self.even_share(), 0
            self.counters.decay(self.alpha)
        self.seen += 1
        if self.arrived == self.interval_records:
            for worker in range(len(self.waits)):
                self.drain(worker)
            self.arrived = 0
        self.arrived += 1
        gone = self.counters.count(key)
        if gone is not None:
            self.most.pop(gone, None)
        d = self.classify(key) if self.counters.of(key) > self.floor() else 2
        worker = least(self.clockwise(key, d), self.waits)
        self.waits[worker] += self.costs[worker]
        return worker

    def even_share(self) -> int:
        floor = self.floor()
        hot, weight = 0, 0.0
        for count in self.counters.counts:
            if count > floor:
                hot, weight = hot + 1, weight + count
        share = weight / max(self.counters.total, 1.0)
        return max(2, math.ceil(self.active * share / max(hot, 1)))

    def classify(self, key: int) -> int:
        ratio = max(self.counters.counts) / self.counters.of(key)
        index = 0
        while ratio >= 2 ** (index + 1):
            index += 1
        d = max(self.active // 2**index, self.minimum, self.most.get(key, 0))
        self.most[key] = min(d, self.active)
        return self.most[key]
