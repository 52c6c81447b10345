import numpy as np
import pytest

from unskew.workloads import EvolvingZipf, Zipf


@pytest.mark.parametrize("shift", [0.0, 0.5, 0.8, 1.0])
def test_ranks_reverse_after_the_shift(shift: float) -> None:
    stream = EvolvingZipf(z=1.5, keys=50, records=1_000, shift=shift, seed=4)
    plain = np.concatenate(list(Zipf(z=1.5, keys=50, records=1_000, seed=4).ids()))
    turn = round(1_000 * shift)
    wanted = np.concatenate([plain[:turn], 51 - plain[turn:]])
    np.testing.assert_array_equal(np.concatenate(list(stream.ids(64))), wanted)


def test_defaults_are_the_papers() -> None:
    stream = EvolvingZipf()
    assert (stream.keys, stream.records, stream.shift) == (100_000, 50_000_000, 0.8)


def test_refuses() -> None:
    with pytest.raises(ValueError, match=r"shift must be between 0 and 1, got 1\.5"):
        EvolvingZipf(shift=1.5)
    with pytest.raises(ValueError, match="keys must be at least 1, got 0"):
        EvolvingZipf(keys=0)
