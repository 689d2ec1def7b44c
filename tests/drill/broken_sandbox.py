"""Sandbox stub that is reachable but answers every run with 500."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Broken(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(200, b'"pong"')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(500, b"no space left on device")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Broken).serve_forever()
