"""Specification of a call, and the authenticated records of its results.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import os

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL first, several milliseconds
except ImportError:
    from hashlib import blake2b

from shared.harness.cases.folders import clear, write_all

RESULTS, ANSWER = "results", "answer"
# The languages whose programs are run by the harness's own interpreter; the second one is that of
# function tests.
PYTHON, FUNCTIONS = "python", "functions"


class RunSpec:
    """Specification of a run: language, limits, inputs; sizes in bytes, times in seconds."""

    def __init__(self, data: bytes) -> None:
        head, _, payload = data.partition(b"\n")
        words = head.decode().split(" ")
        self.key = bytes.fromhex(words[0])
        self.language = words[1]
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

    def write(self, record: bytes) -> None:
        self.size += len(record)
        write_all(self.file, record)

    def close(self) -> None:
        os.close(self.file)


class ResultsFile(Records):
    """Records in a file, which the judge fetches at the end.

    It is written at the end: no case can read what earlier ones printed, nor change it.
    """

    def __init__(self, path: str, key: bytes) -> None:
        super().__init__(-1, key)
        self.path = path
        self.text = bytearray()

    def write(self, record: bytes) -> None:
        self.text += record
        self.size += len(record)

    def close(self) -> None:
        clear(self.path)
        with open(self.path, "xb", 0) as file:
            write_all(file.fileno(), self.text)
