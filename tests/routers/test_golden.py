"""Routing decisions on a fixed stream are what they were."""

from __future__ import annotations

import json
import zlib

import pytest

from routers.golden import PATH, fixed_stream, measure
from unskew.routers import ROUTERS

GOLDEN = json.loads(PATH.read_text())


def test_every_scheme_is_in_the_file() -> None:
    assert list(GOLDEN) == list(ROUTERS)


def test_the_stream_is_the_same_everywhere() -> None:
    assert zlib.crc32(fixed_stream().astype("<u8").tobytes()) == 612757544


@pytest.mark.parametrize("name", ROUTERS)
def test_decisions_are_what_they_were(name: str) -> None:
    assert measure(name) == GOLDEN[name], (
        "routing decisions have changed; if they should, python tests/routers/golden.py --write"
    )
