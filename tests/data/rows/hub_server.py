"""Stand-in for the Hugging Face hub's HTTP API: one repository, with fault injection."""

import hashlib
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_API = re.compile(r"/api/datasets/(?P<repo>[^/]+/[^/]+)(?:/(?P<what>[a-z-]+)/(?P<rest>.+))?")
_FILE = re.compile(r"/datasets/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")


class Hub(ThreadingHTTPServer):
    """Serves ``files`` as the repository ``own/set`` at ``COMMIT``, which ``revisions`` name.

    ``faults``: pairs of a pattern of paths and (status, X-Error-Code), the first that fits wins.
    ``torn``: names of files that break off in the middle. ``asked``: requests, in order.
    """

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.revisions = {"main", "v1.0", COMMIT}
        self.faults: list[tuple[str, int, str]] = []
        self.torn: set[str] = set()
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


MBPP = {
    "text": "Write a function that doubles a number.",
    "code": "def double(x):\r\n    return 2 * x",
    "test_list": ["assert double(2) == 4", "assert double(0) == 0"],
    "test_setup_code": "",
    "challenge_test_list": [],
}


@contextmanager
def serving_mbpp() -> Iterator["Hub"]:
    """A hub with problems 11 and 211 in the split ``test`` of the configuration ``full``."""
    content = io.BytesIO()
    rows = [MBPP | {"task_id": number, "text": f"{MBPP['text']} {number}"} for number in (11, 211)]
    pq.write_table(pa.Table.from_pylist(rows), content)
    files = [{"split": "test", "path": "full/test.parquet"}]
    card = yaml.safe_dump({"configs": [{"config_name": "full", "data_files": files}]})
    readme = f"---\n{card}---\n".encode()
    with serving({"README.md": readme, "full/test.parquet": content.getvalue()}) as hub:
        yield hub


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Hub]:
    with Hub(files) as hub:
        Thread(target=hub.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield hub
        finally:
            hub.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def do_POST(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer()

    def _answer(self):
        path, _, self.query = unquote(self.path).partition("?")
        self.server.asked.append(f"{self.command} {path}")
        for pattern, status, code in self.server.faults:
            if re.search(pattern, path):
                return self._refuse(status, code)
        if match := _FILE.fullmatch(path):
            return self._file(**match.groupdict())
        if match := _API.fullmatch(path):
            return self._api(**match.groupdict())
        return self._refuse(404, "EntryNotFound")

    def _api(self, repo, what, rest):
        if repo != "own/set":
            return self._refuse(401, "RepoNotFound")
        revision, _, name = (rest or COMMIT).partition("/")
        if revision not in self.server.revisions:
            return self._refuse(404, "RevisionNotFound")
        if what == "tree":
            return self._tree(name)
        if what == "paths-info":
            return self._json([self._entry(file) for file in self.server.files])
        names = [{"rfilename": file} for file in self.server.files]
        return self._json({"id": repo, "sha": COMMIT, "siblings": names, "private": False})

    def _tree(self, folder):
        inside = [
            file for file in self.server.files if file.startswith(f"{folder}/" if folder else "")
        ]
        folders = {one.rpartition("/")[0] for one in inside} - {"", folder}
        entries = [
            {"type": "directory", "path": one, "oid": "0" * 40, "size": 0} for one in folders
        ]
        return self._json(entries + [self._entry(one) for one in inside])

    def _entry(self, name):
        content = self.server.files[name]
        oid = hashlib.sha1(content).hexdigest()
        return {"type": "file", "path": name, "oid": oid, "size": len(content)}

    def _file(self, repo, revision, name):
        if repo != "own/set":
            return self._refuse(401, "RepoNotFound")
        if revision not in self.server.revisions:
            return self._refuse(404, "RevisionNotFound")
        if name not in self.server.files:
            return self._refuse(404, "EntryNotFound")
        content = self.server.files[name]
        etag = hashlib.sha1(content).hexdigest()
        headers = {"ETag": f'"{etag}"'}
        return self._send(200, content, headers, torn=name in self.server.torn)

    def _json(self, value):
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status, code):
        headers = {"X-Error-Code": code} if code else {}
        self._send(status, json.dumps({"error": code}).encode(), headers)

    def _send(self, status, body, headers, torn=False):
        self.send_response(status)
        for name, value in {"X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if torn else body)
            self.close_connection = torn
