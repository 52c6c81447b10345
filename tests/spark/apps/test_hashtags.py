"""Statistics of hashtags equal those of pandas; the number of people within its error bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.apps.streamed import SCHEMES, streamed, tables
from unskew.apps.hashtags import HASHTAGS
from unskew.workloads import EvolvingZipf


@pytest.mark.parametrize(("scheme", "mode"), SCHEMES[1:])
def test_equals_pandas(spark: SparkSession, tmp_path: Path, scheme: str, mode: str) -> None:
    ids = np.concatenate([*EvolvingZipf(1.4, 100, 4000, seed=1).ids(4000)])
    batches = tables(HASHTAGS, ids, 2)
    found = streamed(spark, HASHTAGS, batches, tmp_path, scheme, mode).set_index("tag")
    by_tag = pa.concat_tables(batches).to_pandas().groupby("tag")
    assert found.uses.to_dict() == by_tag.size().to_dict()
    for name, exact in (("first", by_tag.ts.min()), ("last", by_tag.ts.max())):
        assert (found[name].dt.tz_localize("UTC")[exact.index] == exact).all()
    people = by_tag.person.nunique()
    assert people.max() > 100
    assert (abs(found.people[people.index] - people) <= 1 + 0.05 * people).all()
