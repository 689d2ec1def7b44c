import io
import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.rows.hub_server import COMMIT, serving

README = b"""---
configs:
- config_name: full
  data_files:
  - split: train
    path: full/train-*.parquet
  - split: test
    path: full/test-*.parquet
- config_name: lines
  data_files:
  - split: test
    path: lines/test.jsonl
- config_name: table
  data_files:
  - split: test
    path: table/test.csv
---
# Own set
"""
FULL = {"path": "own/set", "revision": "v1.0", "name": "full", "split": "test"}


def table(*numbers):
    content = io.BytesIO()
    rows = [{"number": number, "tests": {"input": ["1"]}} for number in numbers]
    pq.write_table(pa.Table.from_pylist(rows), content)
    return content.getvalue()


FILES = {
    "README.md": README,
    "full/train-0.parquet": table(0),
    "full/test-1.parquet": table(3),
    "full/test-0.parquet": table(1, 2),
    "lines/test.jsonl": b'{"number": 7}\n',
    "table/test.csv": b"number\n1\n",
}


@pytest.fixture(scope="module")
def server():
    with serving(dict(FILES)) as server:
        yield server


@pytest.fixture
def hub(server):
    server.faults.clear()
    server.torn.clear()
    server.asked.clear()
    return server


class Child:
    """A process that reads the hub, with its own cache."""

    def __init__(self, home, **variables):
        self.home = home
        settings = {"HF_HOME": str(home), "HF_UPDATE_DOWNLOAD_COUNTS": "0", **variables}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.data.rows.hub_child"],
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *calls):
        """Make calls; returns the result of each."""
        self.process.stdin.write(json.dumps(calls) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.communicate()


@pytest.fixture(scope="module")
def child(server, tmp_path_factory):
    child = Child(tmp_path_factory.mktemp("home"), HF_ENDPOINT=server.url)
    yield child
    child.stop()


@pytest.fixture
def home(child):
    """The folder of the child's cache, which is empty at first."""
    shutil.rmtree(child.home / "hub", ignore_errors=True)
    return child.home


@pytest.fixture
def ask(hub, home, child):
    return child


def numbers(rows):
    assert isinstance(rows, list), rows
    return [fields["number"] for _, fields in rows]


def test_a_split_at_a_tag_and_what_is_not_read(hub, ask):
    rows, commit, lines, csv = ask(
        {"source": FULL},
        {"source": FULL, "resolve": True},
        {"source": FULL | {"name": "lines"}},
        {"source": FULL | {"name": "table"}},
    )
    assert numbers(rows) == [1, 2, 3]
    assert rows[0][1]["tests"] == {"input": ["1"]}
    assert [place for place, _ in rows[1:]] == [
        f"own/set@{COMMIT}/full/test-0.parquet: row 2",
        f"own/set@{COMMIT}/full/test-1.parquet: row 1",
    ]
    assert commit == COMMIT
    assert not [path for path in hub.asked if "train" in path], "another split was fetched"
    assert lines == [[f"own/set@{COMMIT}/lines/test.jsonl:1", {"number": 7}]]
    assert "'table/test.csv' is neither parquet nor JSON" in csv


def test_offline_reads_what_was_fetched_and_names_the_rest(hub, ask, home):
    (online,) = ask({"source": FULL})
    hub.asked.clear()
    pinned = FULL | {"revision": COMMIT}
    assert ask({"source": pinned, "offline": True}) == [online]
    unconnected = Child(home, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
    assert unconnected({"source": pinned}) == [online]
    unconnected.stop()
    others = [{"split": "train"}, {"name": "lines"}, {"path": "own/other"}, {"revision": "main"}]
    split, name, path, branch = ask(
        *({"source": pinned | other, "offline": True} for other in others)
    )
    place = f"own/set@{COMMIT}"
    assert split.startswith(f"{place}: offline, and split 'train' is not in the cache")
    assert name.startswith(f"{place}: offline, and split 'test' is not in the cache")
    assert "is not in the cache" in path
    assert branch == "own/set@main: offline, and the revision is not a commit; name one"
    assert hub.asked == []
    (lost,) = home.rglob(f"snapshots/{COMMIT}/full/test-1.parquet")
    lost.unlink()
    message, again = ask({"source": pinned, "offline": True}, {"source": FULL})
    assert "is not in the cache" in message
    assert again == online


def test_names_that_are_wrong(ask):
    place = f"own/set@{COMMIT}"
    no_revision = "no such revision; name a commit, a branch or a tag"
    expected = {
        ("name", None): f"{place}: cannot be fetched (ValueError: Config name is missing",
        ("name", "small"): f"{place}: cannot be fetched (ValueError: BuilderConfig 'small' not",
        ("split", "dev"): f"{place}: no split 'dev'; choose one of: train, test",
        ("revision", "v2"): f"own/set@v2: {no_revision}",
        ("revision", "f" * 40): f"own/set@{'f' * 40}: ",
        ("revision", "../../x"): "own/set@../../x: ",
        ("path", "own/other"): "own/other@v1.0: no such data set, or it is private; check the name",
        ("path", "a/b/c"): "a/b/c@v1.0: not a data set's name; write OWNER/NAME",
        ("path", "/tmp"): "/tmp@v1.0: not a data set's name; write OWNER/NAME",
    }
    messages = ask(*({"source": FULL | {key: value}} for key, value in expected))
    for message, start in zip(messages, expected.values(), strict=True):
        assert message.startswith(start)
        assert len(message.splitlines()) == 1


def test_refusals_and_downloads_that_break_off(hub, ask):
    hub.faults += [("revision/gated", 403, "GatedRepo"), ("README.md", 418, "")]
    calls = [{"source": FULL | {"revision": name}} for name in ("gated", "v1.0")]
    messages = ask(*calls)
    hub.faults[:] = [("test-1.parquet", 401, "GatedRepo")]
    messages += ask({"source": FULL})
    hub.faults.clear()
    hub.torn.add("full/test-1.parquet")
    messages += ask({"source": FULL})
    login = "needs a login; accept its terms on the hub and log"
    for message, cause in zip(messages, [login, "", login, ""], strict=True):
        assert message.startswith("own/set@")
        assert f": {cause}" in message
        assert len(message.splitlines()) == 1
    hub.torn.clear()
    assert numbers(ask({"source": FULL})[0]) == [1, 2, 3]
