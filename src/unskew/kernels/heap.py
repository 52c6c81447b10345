"""A binary min-heap of (value, item) pairs in two arrays; equal values go by item."""

from __future__ import annotations

from unskew.kernels.jit import inlined


@inlined
def before(values, items, a, b):
    return values[a] < values[b] or (values[a] == values[b] and items[a] < items[b])


@inlined
def swap(values, items, a, b):
    values[a], values[b] = values[b], values[a]
    items[a], items[b] = items[b], items[a]


@inlined
def sift_down(values, items, at, size):
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and before(values, items, child + 1, child):
            child += 1
        if not before(values, items, child, at):
            return
        swap(values, items, at, child)
        at = child


@inlined
def heapify(values, items, size):
    for at in range(size // 2 - 1, -1, -1):
        sift_down(values, items, at, size)


@inlined
def sort_descending(values, items, size):
    heapify(values, items, size)
    for last in range(size - 1, 0, -1):
        swap(values, items, 0, last)
        sift_down(values, items, 0, last)
