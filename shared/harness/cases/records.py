"""Specification of a call, and the authenticated records of its results.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import os

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL first, several milliseconds
except ImportError:
    from hashlib import blake2b

from shared.harness.cases.files import clear, write_all

RESULTS, ANSWER = "results", "answer"
# Bytes of output from which it is compressed where the results are a file.
COMPRESSED = 65536
# The languages whose programs are run by the harness's own interpreter; the second one is that of
# function tests.
PYTHON, FUNCTIONS = "python", "functions"


class RunSpec:
    """Specification of a run: language, limits, inputs; sizes in bytes, times in seconds."""

    def __init__(self, data: bytes) -> None:
        head, _, payload = data.partition(b"\n")
        words = head.decode().split(" ")
        self.key = bytes.fromhex(words[0])
        # After a colon: the time of compiling is wanted.
        self.language, _, self.timed = words[1].partition(":")
        self.cpu_limit, self.wall_limit, self.compile_limit, self.budget = map(float, words[2:6])
        self.memory, self.output, self.processes, self.max_timeouts, self.max_results = map(
            int, words[6:11]
        )
        self.inputs: list[bytes] = []
        start = 0
        for size in map(int, words[11:]):
            self.inputs.append(payload[start : start + size])
            start += size


class Records:
    """Chain of authenticated records, written to a file descriptor."""

    def __init__(self, fd: int, key: bytes) -> None:
        self.file = fd
        self.key = key
        self.mac = b""
        self.size = 0

    def add(self, kind: str, *words: object, out: bytes = b"", err: bytes = b"") -> None:
        head = " ".join(map(str, (kind, *words, len(out), len(err)))).encode()
        digest = blake2b(self.mac, key=self.key, digest_size=16)
        for part in (head, b"\n", out, err):
            digest.update(part)
        self.mac = digest.digest()
        self.write(b"".join((head, b" ", self.mac.hex().encode(), b"\n", out, err, b"\n")))

    def pack(self, data: bytes) -> bytes:
        """Return ``data``, or something shorter: ``data`` as zlib compresses it."""
        return data

    def write(self, record: bytes) -> None:
        self.size += len(record)
        write_all(self.file, record)

    def close(self) -> None:
        os.close(self.file)


class ResultsFile(Records):
    """Records in a file, which the judge fetches at the end.

    ``at_once`` writes them as they come; otherwise no case can read what earlier ones printed.
    """

    def __init__(self, path: str, key: bytes, at_once: bool = True) -> None:
        self.path = path
        self.text = bytearray()
        self.at_once = at_once
        super().__init__(self.create() if at_once else -1, key)

    def create(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def pack(self, data: bytes) -> bytes:
        if len(data) < COMPRESSED:
            return data
        try:
            import zlib
        except ImportError:
            return data
        return min(zlib.compress(data, 1), data, key=len)

    def write(self, record: bytes) -> None:
        self.text += record
        if self.at_once:
            super().write(record)
        else:
            self.size += len(record)

    def close(self) -> None:
        """Rewrite the file if the answer has changed or replaced it."""
        if not self.at_once:
            clear(self.path)
            self.file = self.create()
            write_all(self.file, self.text)
            return
        try:
            there = os.stat(self.path, follow_symlinks=False)
            untouched = os.path.samestat(there, os.fstat(self.file))
        except OSError:
            untouched = False
        if not untouched or os.pread(self.file, len(self.text) + 1, 0) != self.text:
            clear(self.path)
            self.file = self.create()
            write_all(self.file, self.text)
