"""Facts about a query that are read from its checkpoint."""

from __future__ import annotations

import json

import pyarrow.fs as fs

from unskew.spark.runtime.files import located

PARTITIONS = "spark.sql.shuffle.partitions"


def checkpoint_partitions(root: str) -> int | None:
    """Return the number of shuffle partitions in a checkpoint; None if there is no batch yet.

    A query keeps the number that it started with, whatever the session's setting.
    """
    system, path = located(root)
    infos = system.get_file_info(fs.FileSelector(f"{path}/offsets", allow_not_found=True))
    batches = [int(info.base_name) for info in infos if info.base_name.isdigit()]
    if not batches:
        return None
    name = f"{path}/offsets/{max(batches)}"
    with system.open_input_stream(name) as file:
        lines = file.read().decode(errors="replace").splitlines()
    try:
        return int(json.loads(lines[1])["conf"][PARTITIONS])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name} is not an offset log of Spark: {error!r}") from None
