"""Sandbox stub that is reachable but answers every run with 500."""

import os
import threading

from tests.sandbox_records import Answer, behaving


def broken(path: str, _body: object) -> Answer:
    return (
        (200, b'"pong"') if path in ("/v1/ping", "/metrics") else (500, b"no space left on device")
    )


if __name__ == "__main__":
    with behaving(broken, int(os.environ["PORT"])):
        threading.Event().wait()
