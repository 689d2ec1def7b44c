import io
import json
import os
import socket
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.data.rows.hub import hub_errors
from shared.errors import DataError
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


@pytest.fixture
def hub():
    with serving(dict(FILES)) as server:
        yield server


@pytest.fixture
def ask(hub, tmp_path):
    """Make calls in one process; gives what came of each."""

    def ask(*calls, **variables):
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
            **variables,
        }
        command = [sys.executable, "-m", "tests.data.rows.hub_child", json.dumps(calls)]
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert found.stderr == ""
        return json.loads(found.stdout)

    return ask


def numbers(rows):
    assert isinstance(rows, list), rows
    return [fields["number"] for _, fields in rows]


def test_a_split_at_a_tag_and_what_is_not_read(hub, ask):
    rows, chosen, commit, lines, csv = ask(
        {"source": FULL},
        {"source": FULL, "columns": ["number", "nowhere"]},
        {"source": FULL, "resolve": True},
        {"source": FULL | {"name": "lines"}},
        {"source": FULL | {"name": "table"}},
    )
    assert numbers(rows) == [1, 2, 3]
    assert rows[0][1]["tests"] == {"input": ["1"]}
    places = [place for place, _ in rows]
    assert places[1:] == [
        f"own/set@{COMMIT}/full/test-0.parquet: row 2",
        f"own/set@{COMMIT}/full/test-1.parquet: row 1",
    ]
    assert chosen == [[place, {"number": n}] for place, n in zip(places, (1, 2, 3), strict=True)]
    assert commit == COMMIT
    assert not [path for path in hub.asked if "train" in path], "another split was fetched"
    assert lines == [[f"own/set@{COMMIT}/lines/test.jsonl:1", {"number": 7}]]
    assert "'table/test.csv' is neither parquet, Arrow nor JSON" in csv


def test_offline_reads_what_was_fetched(hub, ask, tmp_path):
    cache = {"cache": str(tmp_path / "cache")}
    (online,) = ask({"source": FULL, **cache})
    assert len(list((tmp_path / "cache").rglob("snapshots/*/full/*.parquet"))) == 2
    hub.asked.clear()
    calls = [{"source": FULL, **cache}, {"source": FULL | {"revision": COMMIT}, **cache}]
    assert ask(*({**call, "offline": True} for call in calls)) == [online] * 2
    assert ask(*calls, HF_HUB_OFFLINE="1") == [online] * 2
    assert hub.asked == []


@pytest.mark.nightly
def test_offline_names_what_is_not_in_the_cache(hub, ask):
    ask({"source": FULL})
    hub.asked.clear()
    others = [{"split": "train"}, {"name": "lines"}, {"revision": "main"}, {"path": "own/other"}]
    split, name, revision, path = ask(
        *({"source": FULL | other, "offline": True} for other in others)
    )
    place = f"own/set@{COMMIT}"
    assert split.startswith(f"{place}: offline, and split 'train' is not in the cache")
    assert name.startswith(f"{place}: offline, and split 'test' is not in the cache")
    assert revision.startswith("own/set@main: offline, and the revision's commit is not")
    assert path.startswith("own/other@v1.0: offline, and the revision's commit")
    assert hub.asked == []


@pytest.mark.nightly
def test_offline_with_a_lost_file_or_listing(ask, tmp_path):
    folders = {name: tmp_path / name for name in ("file", "listing")}
    calls = [{"source": FULL, "cache": str(folder)} for folder in folders.values()]
    ask(*calls)
    (lost,) = folders["file"].rglob(f"snapshots/{COMMIT}/full/test-1.parquet")
    lost.unlink()
    (listing,) = folders["listing"].rglob("listings/**/*.json")
    listing.write_text('{"files": [')
    *offline, first, second = ask(*({**call, "offline": True} for call in calls), *calls)
    for message in offline:
        assert "offline, and " in message
        assert "is not in the cache" in message
    assert numbers(first) == numbers(second) == [1, 2, 3]


@pytest.mark.nightly
def test_names_that_are_wrong(ask):
    others = [
        {"name": None},
        {"name": "small"},
        {"split": "dev"},
        {"revision": "v2"},
        {"revision": "f" * 40},
        {"revision": "../../x"},
        {"path": "own/other"},
        {"path": "a/b/c"},
        {"path": "/tmp"},
    ]
    messages = ask(*({"source": FULL | other} for other in others))
    assert all(len(message.splitlines()) == 1 for message in messages)
    place = f"own/set@{COMMIT}"
    no_revision = "no such revision; name a commit, a branch or a tag"
    assert messages == [
        f"{place}: has several configurations; name one of full, lines, table",
        f"{place}: no configuration 'small'; name one of full, lines, table",
        f"{place}: no split 'dev'; choose one of: train, test",
        f"own/set@v2: {no_revision}",
        f"own/set@{'f' * 40}: {no_revision}",
        "own/set@../../x: not a valid revision; name a commit, a branch or a tag",
        "own/other@v1.0: no such data set, or it is private; check the name or log in "
        "with HF_TOKEN",
        "a/b/c@v1.0: not a data set's name; write OWNER/NAME",
        "/tmp@v1.0: not a data set's name; write OWNER/NAME",
    ]


def test_refusals(hub, ask):
    login = "needs a login; accept its terms on the hub and log"
    hub.faults += [
        ("revision/gated", 403, "GatedRepo"),
        ("revision/broken", 500, ""),
        ("README.md", 418, ""),
    ]
    calls = [{"source": FULL | {"revision": name}} for name in ("gated", "broken", "v1.0")]
    messages = ask(*calls)
    hub.faults[:] = [("test-1.parquet", 401, "GatedRepo")]
    messages += ask({"source": FULL})
    causes = [login, "the hub returned HTTP 500", "the hub returned HTTP 418", login]
    for message, cause in zip(messages, causes, strict=True):
        assert message.startswith("own/set@")
        assert f": {cause}" in message


@pytest.mark.nightly
def test_no_network(ask):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (message,) = ask({"source": FULL}, HF_ENDPOINT=url)
    assert message.startswith("own/set@v1.0: the connection to the hub failed (ConnectError: ")


@pytest.mark.nightly
def test_what_datasets_raises_without_a_network():
    """It has its own exception, whose cause is the cache's."""
    said = r"^a/b: the connection to the hub failed .*check the network"
    with pytest.raises(DataError, match=said), hub_errors("a/b"):
        raise ConnectionError("Couldn't reach 'a/b' on the Hub (LocalEntryNotFoundError)")


def test_a_download_that_breaks_off_is_made_again(hub, ask):
    hub.torn.add("full/test-1.parquet")
    (message,) = ask({"source": FULL})
    expected = f"own/set@{COMMIT}/full/test-1.parquet: the connection to the hub failed"
    assert message.startswith(expected)
    hub.torn.clear()
    assert numbers(ask({"source": FULL})[0]) == [1, 2, 3]


@pytest.mark.nightly
def test_an_empty_or_damaged_repository(hub, ask):
    hub.files["README.md"] = b"# nothing else\n"
    hub.files["data/test-0.parquet"] = b"PAR1 is not enough"
    for name in [name for name in FILES if "/" in name]:
        del hub.files[name]
    (damaged,) = ask({"source": FULL | {"name": None}})
    assert "data/test-0.parquet: not a parquet file" in damaged
    del hub.files["data/test-0.parquet"]
    (empty,) = ask({"source": FULL | {"name": None, "split": "train"}})
    assert "cannot be downloaded (" in empty


@pytest.mark.nightly
def test_a_full_disk(ask):
    (message,) = ask({"source": FULL, "full_disk": True})
    cause = "no space left for it (No space left on device); free some space or use another cache"
    assert message.endswith(cause)


@pytest.mark.nightly
def test_a_cache_that_is_no_folder(ask, tmp_path):
    (tmp_path / "cache").write_text("x")
    calls = [{"source": FULL | {"revision": revision}} for revision in ("v1.0", COMMIT)]
    for message in ask(*(call | {"cache": str(tmp_path / "cache")} for call in calls)):
        assert message.startswith("own/set@")
        assert "the cache cannot be used (Not a directory: " in message


@pytest.mark.nightly
def test_another_revision_in_the_cache_does_not_step_in(hub, ask, tmp_path):
    """``datasets`` falls back on whatever it has of a data set where the hub refuses."""
    other = tmp_path / "home" / "datasets" / "own___set" / "full" / "0.0.0" / "abc"
    other.mkdir(parents=True)
    (other / "dataset_info.json").write_text('{"config_name": "full"}')
    hub.faults.append(("README.md", 401, "RepoNotFound"))
    (message,) = ask({"source": FULL | {"revision": COMMIT}})
    assert "Dataset 'own/set' doesn't exist on the Hub or cannot be accessed" in message
