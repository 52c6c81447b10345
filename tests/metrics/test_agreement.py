from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.metrics import Agreement

decisions = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=60)


@given(decisions, st.integers(0, 60))
def test_against_naive(pairs: list[tuple[int, int]], cut: int) -> None:
    measure = Agreement()
    for piece in (pairs[:cut], pairs[cut:]):
        measure.update([a for a, _ in piece], [b for _, b in piece])
    result = measure.result()

    ours = {(i, a) for i, (a, _) in enumerate(pairs)}
    theirs = {(i, b) for i, (_, b) in enumerate(pairs)}
    alike = len(ours & theirs)
    assert result["records"] == len(pairs)
    assert result["alike"] == alike
    assert result["alike_share"] == (alike / len(pairs) if pairs else 1.0)
    assert result["jaccard"] == (alike / len(ours | theirs) if pairs else 1.0)


def test_refuses_arrays_that_do_not_match() -> None:
    measure = Agreement()
    with pytest.raises(ValueError, match="one length"):
        measure.update([1, 2], [1])
    with pytest.raises(ValueError, match="1-d"):
        measure.update([[1, 2]], [[1, 2]])
    assert measure.result()["records"] == 0
