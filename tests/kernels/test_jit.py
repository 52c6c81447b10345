"""Kernels are compiled by one process at a time, run without a cache, and run as plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from unskew.kernels.hashing import xxhash_longs
from unskew.kernels.jit import uncompiled

HASH = """
import sys
import numpy as np
from unskew.kernels.hashing import xxhash_longs
from unskew.kernels.jit import uncompiled
out = np.empty(2, np.uint64)
{}
print(out.tolist(), "numba" in sys.modules)
"""
CALL = "xxhash_longs(np.array([7, 8], np.uint64), np.uint64(42), out)"
COMPILED = HASH.format(CALL)
PLAIN = HASH.format(f"with uncompiled():\n    {CALL}")


def start(program: str, **settings: str) -> subprocess.Popen[str]:
    """Start a program in an environment of its own."""
    env = {k: v for k, v in os.environ.items() if k != "NUMBA_DISABLE_JIT"} | settings
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdout=pipe, stderr=pipe, text=True
    )


def output(process: subprocess.Popen[str]) -> str:
    """Return what a program printed; it must end well."""
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return out.strip()


def hashes() -> list[int]:
    out = np.empty(2, np.uint64)
    xxhash_longs(np.array([7, 8], np.uint64), np.uint64(42), out)
    return [int(value) for value in out]


def test_uncompiled_kernels_give_the_same_without_numba() -> None:
    assert output(start(PLAIN)) == f"{hashes()} False"


@pytest.mark.jit
def test_many_processes_compile_once(tmp_path: Path) -> None:
    """Two of three wait for the first, and find its work in the cache."""
    program = COMPILED + "print(len(xxhash_longs.compiled.stats.cache_hits))"
    processes = [start(program, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(3)]
    printed = [output(process).splitlines() for process in processes]
    assert [values for values, _ in printed] == [f"{hashes()} True"] * 3
    assert sorted(int(hits) for _, hits in printed) == [0, 1, 1]


@pytest.mark.jit
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    nowhere = str(blocked / "cache")
    program = f"import numba.core.caching as c; c.CacheImpl._locator_classes = []\n{COMPILED}"
    assert output(start(program, NUMBA_CACHE_DIR=nowhere, HOME=nowhere)) == f"{hashes()} True"


def test_other_threads_stay_as_they_are() -> None:
    """Uncompiled is what one thread does, and it ends."""
    seen: list[list[int]] = []
    with uncompiled():
        thread = threading.Thread(target=lambda: seen.append(hashes()))
        thread.start()
        thread.join()
        seen.append(hashes())
    assert seen == [hashes()] * 2
