"""The phases of rebalancing: take keys off overloaded workers, and place them again (LLFD).

Keys come as items: so many keys of the same cost that start on the same worker. In the original
key space that is one key each; in the compact form an item is a vector of the paper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.jit import inlined, kernel

SLACK = 1e-9
"""Loads are sums of floats: a worker at its limit to within rounding is not above it."""


class Items(NamedTuple):
    """Keys of the same cost that start on the same worker, and how many; by descending cost.

    ``liked`` is the worker that gets a key, if it has room, before the least loaded; -1 for none.
    """

    cost: NDArray[np.float64]
    start: NDArray[np.int32]
    keys: NDArray[np.int64]
    liked: NDArray[np.int32]


class Order(NamedTuple):
    """Items in psi's order within their workers, those of worker d from ``first[d]`` on."""

    items: NDArray[np.int32]
    first: NDArray[np.int64]


class Bins(NamedTuple):
    """Workers: running load, its limit, capacity (0: not there); scratch of the exchange.

    ``spare`` is the cost that could still be exchanged, ``seen`` how far psi's order is used up.
    """

    load: NDArray[np.float64]
    limit: NDArray[np.float64]
    capacity: NDArray[np.float64]
    spare: NDArray[np.float64]
    seen: NDArray[np.int64]


class Placed(NamedTuple):
    """What LLFD did, in order: so many keys of an item to a worker; ``size[0]`` rows of it.

    ``size[1]`` is the number of keys that no worker had room for.
    """

    item: NDArray[np.int32]
    worker: NDArray[np.int32]
    keys: NDArray[np.int64]
    size: NDArray[np.int64]


@kernel
def add_costs(homes, costs, loads):
    for i in range(len(homes)):
        loads[homes[i]] += costs[i]


@kernel
def order_by_worker(psi, start, order):
    """Sort items by worker, in psi's order within each."""
    first = order.first
    first[:] = 0
    for item in psi:
        first[start[item] + 1] += 1
    for d in range(1, len(first)):
        first[d] += first[d - 1]
    for item in psi:
        order.items[first[start[item]]] = item
        first[start[item]] += 1
    for d in range(len(first) - 1, 0, -1):
        first[d] = first[d - 1]
    first[0] = 0


@kernel
def disassociate(items, order, bins, staying, waiting):
    """Phase II: take keys off overloaded workers, in psi's order, until they are not."""
    for i in range(len(items.cost)):
        staying[i] = items.keys[i]
        waiting[i] = 0
        bins.load[items.start[i]] += items.cost[i] * items.keys[i]
    for d in range(len(bins.load)):
        at = order.first[d]
        while bins.load[d] > bins.limit[d] * (1.0 + SLACK) and at < order.first[d + 1]:
            item = order.items[at]
            if items.cost[item] > 0:
                amount = bins.load[d] - bins.limit[d]
                take_off(item, d, amount, items, bins, staying, waiting)
            at += 1


@inlined
def take_off(item, d, amount, items, bins, staying, waiting):
    """Let so many keys of an item wait as make up an amount, or all; return their cost."""
    cost = items.cost[item]
    taken = min(staying[item], max(1, np.int64(np.ceil(amount / cost * (1.0 - SLACK)))))
    staying[item] -= taken
    waiting[item] += taken
    bins.load[d] -= taken * cost
    bins.spare[d] -= taken * cost
    return taken * cost


@inlined
def comes_before(bins, a, b):
    left, right = bins.load[a] * bins.capacity[b], bins.load[b] * bins.capacity[a]
    return left < right or (left == right and a < b)


@inlined
def has_room(bins, d, cost):
    return bins.capacity[d] > 0 and bins.load[d] + cost <= bins.limit[d] * (1.0 + SLACK)


@inlined
def find_room(bins, cost):
    """Return the least loaded worker that can take a key as it is, -1 if none can."""
    best = -1
    for d in range(len(bins.load)):
        if has_room(bins, d, cost) and (best < 0 or comes_before(bins, d, best)):
            best = d
    return best


@inlined
def least_bad(bins, cost):
    """Return the worker that a key leaves with the least load."""
    best = -1
    for d in range(len(bins.load)):
        if bins.capacity[d] > 0 and (
            best < 0
            or (bins.load[d] + cost) * bins.capacity[best]
            < (bins.load[best] + cost) * bins.capacity[d]
        ):
            best = d
    return best


@inlined
def exchange(d, cost, items, order, bins, staying, waiting):
    """Adjust: make room for a key by taking smaller ones off; say whether that could be done."""
    excess = bins.load[d] + cost - bins.limit[d] * (1.0 + SLACK)
    if bins.spare[d] < excess * (1.0 - SLACK):
        return False
    end = order.first[d + 1]
    # Costs of the keys to place only fall: what is too large now will be so for ever.
    while bins.seen[d] < end:
        item = order.items[bins.seen[d]]
        if staying[item] > 0 and 0 < items.cost[item] < cost:
            break
        bins.seen[d] += 1
    freed = 0.0
    stop = bins.seen[d]
    while stop < end and freed < excess:
        item = order.items[stop]
        if 0 < items.cost[item] < cost:
            freed += staying[item] * items.cost[item]
        stop += 1
    if freed < excess:
        return False
    for at in range(bins.seen[d], stop):
        item = order.items[at]
        if staying[item] > 0 and 0 < items.cost[item] < cost:
            excess -= take_off(item, d, excess, items, bins, staying, waiting)
    return True


@inlined
def find_exchange(cost, items, order, bins, staying, waiting):
    """Return the least loaded worker that can make room for a key, -1 if none can."""
    # Workers in ascending order of load; of equals the lowest first.
    last = -1
    for _ in range(len(bins.load)):
        best = -1
        for d in range(len(bins.load)):
            left = bins.capacity[d] > 0 and (last < 0 or comes_before(bins, last, d))
            if left and (best < 0 or comes_before(bins, d, best)):
                best = d
        if best < 0 or exchange(best, cost, items, order, bins, staying, waiting):
            return best
        last = best
    return -1


@inlined
def record(placed, item, worker):
    at = placed.size[0] - 1
    if at >= 0 and placed.item[at] == item and placed.worker[at] == worker:
        placed.keys[at] += 1
    else:
        placed.item[at + 1] = item
        placed.worker[at + 1] = worker
        placed.keys[at + 1] = 1
        placed.size[0] += 1


@kernel
def place_decreasing(items, order, bins, staying, waiting, placed):
    """Phase III, LLFD: place the waiting keys, the costliest first, on the least loaded workers."""
    bins.spare[:] = 0.0
    for i in range(len(items.cost)):
        bins.spare[items.start[i]] += items.cost[i] * staying[i]
    for d in range(len(bins.load)):
        bins.seen[d] = order.first[d]
    placed.size[:] = 0
    passed = 0
    # An exchanged key costs less than the one it makes room for, so one way down meets them all.
    for item in range(len(items.cost)):
        if waiting[item] == 0:
            continue
        cost = items.cost[item]
        while passed < len(items.cost) and items.cost[passed] >= cost:
            bins.spare[items.start[passed]] -= items.cost[passed] * staying[passed]
            passed += 1
        while waiting[item] > 0:
            waiting[item] -= 1
            worker = items.liked[item]
            if worker < 0 or not has_room(bins, worker, cost):
                worker = find_room(bins, cost)
            if worker < 0:
                worker = find_exchange(cost, items, order, bins, staying, waiting)
            if worker < 0:
                worker = least_bad(bins, cost)
                placed.size[1] += 1
            bins.load[worker] += cost
            record(placed, item, worker)


@kernel
def place_all(costs, bins, out):
    """Place keys, given by descending cost, where they leave the least load (Simple)."""
    for i in range(len(costs)):
        out[i] = least_bad(bins, costs[i])
        bins.load[out[i]] += costs[i]
