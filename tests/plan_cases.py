"""Plans that the tests of plans and of their files draw from."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from unskew.plan import FALLBACKS, Plan

capacities = st.sampled_from([0.1, 0.5, 1.0, 1.0, 3.0])
keys = st.integers(0, 5) | st.integers(0, 2**64 - 1)

SMALL = Plan.empty([1.0, 0.0, 2.5]).with_entries([9, 2**64 - 1], [2, 0], scheme="mixed")


@st.composite
def plans(draw: st.DrawFn, fallback: str | None = None) -> Plan:
    """Draw a plan: some workers have left, some keys have an entry."""
    fallback = fallback or draw(st.sampled_from(FALLBACKS))
    speed = capacities if fallback != "consistent" else capacities | st.just(0.0)
    speeds = draw(st.lists(speed, min_size=1, max_size=6).filter(any))
    active = st.sampled_from([worker for worker, speed in enumerate(speeds) if speed])
    table = draw(st.dictionaries(keys, active, max_size=20))
    return Plan(
        tuple(speeds),
        np.array(sorted(table), np.uint64),
        np.array([table[key] for key in sorted(table)], np.int32),
        draw(st.integers(0, 2**62)),
        draw(st.text(max_size=8)),
        fallback,
        draw(st.integers(0, 2**64 - 1)),
        draw(st.integers(1, 200)),
    )


def entries(plan: Plan) -> dict[int, int]:
    return dict(zip(plan.keys.tolist(), plan.workers.tolist(), strict=True))


def parts(plan: Plan) -> tuple[object, ...]:
    """Return all that a plan is, to compare without its bytes."""
    rest = plan.version, plan.scheme, plan.fallback, plan.seed, plan.nodes
    dtypes = plan.keys.dtype, plan.workers.dtype
    return plan.capacities, list(entries(plan).items()), dtypes, *rest
