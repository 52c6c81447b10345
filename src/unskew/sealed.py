"""Bytes under a seal: a line that says what they are, and a checksum."""

from __future__ import annotations

import hashlib


class SealError(ValueError):
    """The bytes are something else, or not what was sealed."""


def seal(kind: str, body: bytes) -> bytes:
    """Return bytes with a first line that says what they are and how they hash.

    Examples
    --------
    >>> unseal("greeting 1", seal("greeting 1", b"hello"))
    b'hello'
    """
    return f"unskew {kind} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def unseal(kind: str, data: bytes) -> bytes:
    """Return the bytes that were sealed; refuse any others."""
    line, _, body = data.partition(b"\n")
    name = kind.rpartition(" ")[0]
    if not line.startswith(f"unskew {kind} ".encode()):
        raise SealError(f"not a {name} of this version of unskew")
    if line.rpartition(b" ")[2] != hashlib.sha256(body).hexdigest().encode():
        raise SealError(f"corrupt {name}: the checksum does not match")
    return body
