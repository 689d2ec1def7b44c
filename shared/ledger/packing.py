"""Compression of records in Redis."""

import zlib


def pack(document: str) -> bytes:
    """Compress a completion or problem for the ledger."""
    return zlib.compress(document.encode(), 1)


def unpack(packed: bytes) -> bytes:
    """Decompress a stored completion or problem.

    Raises:
        ValueError: It is not zlib.
    """
    try:
        return zlib.decompress(packed)
    except zlib.error as error:
        raise ValueError(f"a record in Redis is not compressed text: {error}") from None
