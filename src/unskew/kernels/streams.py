"""Drawing ranks through a guide table, and the swaps of a fluctuating stream."""

from __future__ import annotations

from unskew.kernels.jit import kernel


@kernel
def draw_ranks(cdf, starts, uniforms, out):
    """Return in ``out`` the 1-based ranks ``searchsorted(cdf, uniforms, side='right') + 1``.

    ``starts[s]`` is the answer (0-based) for ``s / slices``, so the answer for a number in slice s
    lies in ``starts[s]..starts[s + 1]``: most often one place, else a binary search between them.
    """
    slices = len(starts) - 1
    for i in range(len(uniforms)):
        u = uniforms[i]
        at = int(u * slices)
        low, high = starts[at], starts[at + 1]
        while low < high:
            middle = low + (high - low) // 2
            if cdf[middle] <= u:
                low = middle + 1
            else:
                high = middle
        out[i] = low + 1


@kernel
def swap_ranks(pairs, shares, owners, keys_by_rank, before, loads, fluctuation):
    """Swap the keys of ranks that live on different workers until the loads have changed enough.

    A swap takes load from one worker to another. It is done unless it would undo a change: the
    giver must not have gained since ``before``, nor the taker have lost. Returns whether some
    worker d reached ``|loads[d] - before[d]| >= fluctuation * loads[d]``.
    """
    for i in range(len(pairs)):
        first, second = pairs[i, 0], pairs[i, 1]
        if shares[first] < shares[second]:
            first, second = second, first
        giver, taker = owners[keys_by_rank[first]], owners[keys_by_rank[second]]
        if giver == taker or loads[giver] > before[giver] or loads[taker] < before[taker]:
            continue
        moved = shares[first] - shares[second]
        loads[giver] -= moved
        loads[taker] += moved
        held = keys_by_rank[first]
        keys_by_rank[first] = keys_by_rank[second]
        keys_by_rank[second] = held
        for worker in (giver, taker):
            if abs(loads[worker] - before[worker]) >= fluctuation * loads[worker]:
                return True
    return False
