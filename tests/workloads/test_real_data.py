import os
from pathlib import Path

import numpy as np
import pytest

from unskew.hashing import hash_keys
from unskew.workloads import open_stream

DATA = Path(os.environ.get("UNSKEW_DATA", "data"))


@pytest.mark.parametrize(
    ("name", "records", "keys", "p1"),
    [
        ("slashdot0902_edges", 948_464, 82_168, 0.00269),
        ("congress_hashtags", 2_710_837, 157_695, 0.0271),
        ("wikipedia_edits_2015", 39_244, 51, 0.294),
        ("equity_ticks_2013", 2_793_802, 4, 0.676),
    ],
)
def test_statistics_of_the_readme(name: str, records: int, keys: int, p1: float) -> None:
    path = DATA / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"no {path}: point UNSKEW_DATA at the folder of real streams")
    stream = open_stream(str(path))
    hashed = np.concatenate([chunk.keys for chunk in stream.chunks()])
    counts = np.unique(hashed, return_counts=True)[1]
    assert stream.n_records == len(hashed) == records
    assert len(counts) == keys
    assert counts.max() / records == pytest.approx(p1, rel=5e-3)


def test_source_vertices_of_the_slashdot_graph() -> None:
    path = DATA / "slashdot0902_edges.parquet"
    if not path.exists():
        pytest.skip(f"no {path}: point UNSKEW_DATA at the folder of real streams")
    first = next(open_stream(f"{path}:source=src").chunks(10))
    assert first.source_keys is not None
    # The file is sorted by source vertex, from vertex 0 on, in columns of 32-bit integers.
    np.testing.assert_array_equal(first.source_keys, hash_keys(np.zeros(10, np.int32)))
