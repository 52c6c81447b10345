"""Compiled kernels are kept under a name that changes with their text; see CONTRIBUTING."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_ROOT = Path(__file__).parent
_TEXT = b"".join(path.read_bytes() for path in sorted((_ROOT / "src/unskew/kernels").glob("*.py")))
os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(_ROOT / ".cache" / f"numba-{hashlib.sha256(_TEXT).hexdigest()[:16]}")
)
