"""What a query's checkpoint says about it."""

from __future__ import annotations

import json

import pyarrow.fs as fs

from unskew.spark.runtime.files import located

PARTITIONS = "spark.sql.shuffle.partitions"


def checkpoint_partitions(root: str) -> int | None:
    """Return the shuffle partitions that a checkpoint fixes; None if there is none yet.

    A query goes on with the number that it began with, whatever the session says.
    """
    system, path = located(root)
    found = system.get_file_info(fs.FileSelector(f"{path}/offsets", allow_not_found=True))
    batches = [int(info.base_name) for info in found if info.base_name.isdigit()]
    if not batches:
        return None
    name = f"{path}/offsets/{max(batches)}"
    with system.open_input_stream(name) as file:
        lines = file.read().decode(errors="replace").splitlines()
    try:
        return int(json.loads(lines[1])["conf"][PARTITIONS])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name} is not an offset log of Spark: {error!r}") from None
