"""Sandbox stub that answers every run with 500."""

import os
from http.server import ThreadingHTTPServer

from tests.compose.alerts_sandbox import Broken

if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Broken).serve_forever()
