"""Spark's processes are quick to start, and the files of tests that take longest run first."""

from __future__ import annotations

import os

import pytest

# Read by the JVM of every driver, also of those that tests start as programs of their own. Most
# queries are over before it would pay to optimize their code.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

LONGEST = (
    "test_faults",
    "test_commands",
    "test_draws",
    "test_joins",
    "test_stateful",
    "test_moved_states",
    "test_same_as_simulator",
    "test_moving",
    "test_guides",
    "test_kafka",
    "test_connect",
)
"""Files that take a minute or more; the last file to run should not be one of these."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files of tests: the longest first."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))
