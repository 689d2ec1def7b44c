"""Runs in folders: shown, read again, dropped, and what cannot be read said."""

import contextlib
import json
import shutil
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from redis import Redis

from services.aggregator import folders
from services.aggregator.app import make_app, make_folders_app
from services.aggregator.folders import RunFolders
from services.aggregator.index.database import open_database
from services.aggregator.index.overview import all_runs
from services.aggregator.index.writer import IndexWriter
from services.aggregator.ingest import Ingester
from services.aggregator.publish import publish
from shared import finished_run
from shared.case_records import SampleCases
from shared.finished_run import find_runs
from shared.ledger import Ledger
from shared.schemas import CaseResult, SampleId
from tests.aggregator.process import Aggregator
from tests.aggregator.reports import ANSWER, finished
from tests.aggregator.runs import ask
from tests.conftest import RedisServer
from tests.page.compared import until_known
from tests.shared.finished_runs import write_run

FIXTURE = Path(__file__).parents[1] / "fixtures" / "finished_run"


@contextlib.asynccontextmanager
async def viewed(*folders: Path | str, index: Path | None = None) -> AsyncIterator["View"]:
    """Serve the runs below folders; the index is a temporary one by default."""
    database = open_database(index)
    watched = RunFolders([str(folder) for folder in folders], database)
    try:
        async with TestClient(TestServer(make_folders_app(database, watched))) as client:
            yield View(client, watched)
    finally:
        database.close()


class View:
    def __init__(self, client: TestClient, folders: RunFolders) -> None:
        self.client = client
        self.folders = folders

    def refresh(self) -> bool:
        """Search at once, however long the last search took."""
        self.folders._search_at = 0.0
        return self.folders.refresh()


def published(redis: Redis, folder: Path, run: str = "run-1", **meta: Any) -> Ledger:
    """Publish a small run into a folder; its ledger stays."""
    ledger = finished(redis, str(folder), run=run, **meta)
    publish(ledger)
    return ledger


def change(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


async def test_the_api_answers_from_a_folder_as_from_the_ledger(
    redis: Redis, tmp_path: Path
) -> None:
    published(redis, tmp_path / "outputs" / "mine")
    ingester = Ingester(redis)
    ingester.catch_up()
    paths = [
        "/api/runs/run-1/samples?sort=judged_at&order=desc",
        "/api/runs/run-1/samples?status=wrong_answer&tag=dp",
        "/api/runs/run-1/samples/d1/p1/0",
        "/api/runs/run-1/samples/d1/p1/1",
        "/api/runs/run-1/samples/d2/q/0/cases",
    ]
    async with viewed(tmp_path / "outputs") as view:
        assert view.refresh()
        async with TestClient(TestServer(make_app(redis, ingester))) as ledger:
            for path in paths:
                assert await ask(view.client, path) == await ask(ledger, path), path
            ours, theirs = [await ask(one, "/api/runs/run-1") for one in (view.client, ledger)]
    assert ours["summary"]["folder"] == str(tmp_path / "outputs" / "mine")
    assert ours["summary"] == theirs["summary"]
    assert ours["datasets"] == theirs["datasets"]
    assert (ours["metrics"], ours["slices"]) == (theirs["metrics"], theirs["slices"])
    assert ours["notes"] == []


async def test_recorded_cases_are_read_from_the_packed_file(redis: Redis, tmp_path: Path) -> None:
    ledger = finished(redis, str(tmp_path / "run"), config={"output": {"cases": "all"}})
    for number in range(3):
        cases = tuple(
            CaseResult(case_index=place, status="success" if place else "timeout", actual="1")
            for place in range(number + 1)
        )
        sample = SampleId("d1", "p1", 0) if number == 0 else SampleId("d1", "p2")
        packed = SampleCases(recorded="all", cases=cases).packed()
        redis.hset("plumbline:run:run-1:cases", sample.key, packed)
    publish(ledger)
    async with viewed(tmp_path) as view:
        view.refresh()
        page = await ask(view.client, "/api/runs/run-1/samples/d1/p2/0/cases?limit=2")
        none = await ask(view.client, "/api/runs/run-1/samples/d2/q/0/cases")
    assert (page["recorded"], page["total"], page["next"]) == ("all", 3, 2)
    assert [case["status"] for case in page["cases"]] == ["timeout", "success"]
    assert (none["recorded"], none["total"], none["cases"]) == ("all", 0, [])


async def test_runs_appear_change_and_disappear(tmp_path: Path) -> None:
    async with viewed(tmp_path / "outputs") as view:
        assert not view.refresh()
        (folder,) = (await ask(view.client, "/api/folders"))["folders"]
        assert folder["error"] == f"{tmp_path / 'outputs'}: no such folder"
        assert await ask(view.client, "/api/runs") == {}

        write_run(tmp_path / "outputs" / "a", {"d1": "++-"})
        assert view.refresh()
        found = (await ask(view.client, "/api/runs"))["a-0123"]
        assert found["datasets"] == {"d1": {"success": 2, "wrong_answer": 1}}
        assert found["reading"] is False

        shutil.rmtree(tmp_path / "outputs" / "a")
        write_run(tmp_path / "outputs" / "a", {"d1": "+---"})
        assert view.refresh()
        found = (await ask(view.client, "/api/runs"))["a-0123"]
        assert found["datasets"] == {"d1": {"success": 1, "wrong_answer": 3}}

        write_run(tmp_path / "outputs" / "deep" / "er" / "b", {"d1": "+"})
        assert view.refresh()
        assert sorted(await ask(view.client, "/api/runs")) == ["a-0123", "b-0123"]

        shutil.rmtree(tmp_path / "outputs" / "a")
        view.refresh()
        assert list(await ask(view.client, "/api/runs")) == ["b-0123"]
        assert "no run 'a-0123'" in (await ask(view.client, "/api/runs/a-0123", 404))["error"]


async def test_an_unchanged_folder_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "outputs" / "a", {"d1": "++-"})
    read: list[str] = []
    read_lines = finished_run.read_lines

    def counted(path: str) -> Any:
        read.append(path)
        return read_lines(path)

    monkeypatch.setattr(finished_run, "read_lines", counted)
    async with viewed(tmp_path / "outputs", index=tmp_path / "index") as view:
        assert view.refresh()
        assert not view.refresh()
        first = await ask(view.client, "/api/runs")
    assert len(read) == 3
    async with viewed(tmp_path / "outputs", index=tmp_path / "index") as view:
        assert not view.refresh()
        assert await ask(view.client, "/api/runs") == first
    assert len(read) == 3


async def test_a_run_that_was_read_in_part_is_read_again(tmp_path: Path) -> None:
    """The process was killed between two batches."""
    write_run(tmp_path / "outputs" / "a", {"d1": "++-"})
    async with viewed(tmp_path / "outputs", index=tmp_path / "index") as view:
        view.folders._go_on = lambda _batch: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign, assignment]
        with pytest.raises(KeyboardInterrupt):
            view.refresh()
        assert (await ask(view.client, "/api/runs"))["a-0123"]["reading"] is True
    async with viewed(tmp_path / "outputs", index=tmp_path / "index") as view:
        assert view.refresh()
        found = (await ask(view.client, "/api/runs"))["a-0123"]
        assert (found["reading"], found["verdicts"]) == (False, 3)


def test_a_run_that_is_dropped_while_it_is_read_leaves_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger has a run of this name by now."""
    database = open_database()
    watched, ledgers = RunFolders([str(tmp_path)], database), IndexWriter(database)
    monkeypatch.setattr(folders, "_BATCH", 1)

    def drop(_batch: object) -> None:
        if run := ledgers.runs().get("a-0123"):
            ledgers.drop_run(run)

    monkeypatch.setattr(watched, "_go_on", drop)
    watched.refresh()
    write_run(tmp_path / "a", {"d1": "++-"})
    watched._search_at = 0.0
    assert watched.refresh()
    with database.read() as connection:
        for table in ("runs", "samples", "problems", "tallies", "records"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0
    database.close()


async def test_a_run_that_is_removed_while_it_is_looked_at(redis: Redis, tmp_path: Path) -> None:
    published(redis, tmp_path / "run")
    sample = "/api/runs/run-1/samples/d1/p1/0"
    async with viewed(tmp_path) as view:
        view.refresh()
        assert (await ask(view.client, sample))["generation"]["completion"] == ANSWER
        shutil.rmtree(tmp_path / "run")
        assert (await ask(view.client, sample))["generation"]["completion"] == ANSWER
        view.refresh()
        assert "no run 'run-1'" in (await ask(view.client, sample, 404))["error"]


async def test_torn_and_damaged_files_show_what_can_be_shown(redis: Redis, tmp_path: Path) -> None:
    published(redis, tmp_path / "run")
    verdicts = (tmp_path / "run" / "verdicts.jsonl").read_bytes()
    lines = verdicts.splitlines(keepends=True)
    assert len(lines) == 4
    (tmp_path / "run" / "verdicts.jsonl").write_bytes(
        lines[0] + b"\xff\n" + b'{"dataset": 1}\n' + b"\n" + lines[0] + lines[1] + lines[2][:40]
    )
    (tmp_path / "run" / "slices.json").write_text("[[[")
    async with viewed(tmp_path) as view:
        view.refresh()
        run = await ask(view.client, "/api/runs/run-1")
        page = await ask(view.client, "/api/runs/run-1/samples")
        listed = await ask(view.client, "/api/folders")
    path = tmp_path / "run" / "verdicts.jsonl"
    assert run["summary"]["verdicts"] == len(page["samples"]) == 2
    assert run["summary"]["datasets"] == {"d1": {"success": 1, "wrong_answer": 1}}
    slices, *notes = run["notes"]
    assert slices.startswith(f"{tmp_path}/run/slices.json cannot be read")
    assert notes == [
        f"{path}:2: not UTF-8 (byte 1 of the line); convert it, or name it .gz if it is compressed",
        *[note for note in notes if note.startswith(f"{path}:3: not a verdict (dataset:")],
        f"{path}:7: torn last line (not JSON, no newline at the end); remove it or record it again",
        f"{path}: no verdict on 2 of the completions; they are not shown",
        f"{path}: sample d1/p1/0: there is another verdict on it, or a number is too large; "
        "the line is skipped",
    ]
    assert len(notes) == 5
    assert [one["reason"] for one in listed["unreadable"]] == run["notes"]


async def test_a_number_that_is_too_large(redis: Redis, tmp_path: Path) -> None:
    published(redis, tmp_path / "run")
    lines = (tmp_path / "run" / "verdicts.jsonl").read_text().splitlines()
    large = json.loads(lines[1]) | {"cases_total": 10**30}
    (tmp_path / "run" / "verdicts.jsonl").write_text(
        "".join(f"{line}\n" for line in (lines[0], json.dumps(large), *lines[2:]))
    )
    async with viewed(tmp_path) as view:
        view.refresh()
        run = await ask(view.client, "/api/runs/run-1")
    assert run["summary"]["verdicts"] == 3
    (note,) = run["notes"]
    assert "sample d1/p1/1: there is another verdict on it, or a number is too large" in note


async def test_folders_that_cannot_be_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "good", {"d1": "+"})
    for name, text in {
        "torn": '{"run": "x", "conf',
        "newer": '{"version": 9, "run": "x"}',
        "other": "[1, 2]",
        "deep": "[" * 200_000,
        "binary": "\x00\x01",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    write_run(tmp_path / "empty", {"d1": "+"})
    for name in ("verdicts.jsonl", "generations.jsonl", "phase0_summary.json"):
        (tmp_path / "empty" / name).unlink()
    async with viewed(tmp_path) as view:
        view.refresh()
        assert not view.refresh()
        runs = await ask(view.client, "/api/runs")
        listed = await ask(view.client, "/api/folders")
        empty = await ask(view.client, "/api/runs/empty-0123")
    assert sorted(runs) == ["empty-0123", "good-0123"]
    reasons = {one["folder"].rsplit("/", 1)[1]: one["reason"] for one in listed["unreadable"]}
    assert set(reasons) == {"torn", "newer", "other", "deep", "binary", "empty"}
    assert "run record of version 9" in reasons["newer"]
    assert listed["folders"][0]["runs"] == 7
    assert "no phase0_summary.json: its figures are missing" in empty["notes"]
    assert any("verdicts.jsonl: no such file" in note for note in empty["notes"])


async def test_an_unfinished_run_is_shown_as_such(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {"d1": "++"}, change={"state": "running", "complete": False})
    for name in ("verdicts.jsonl", "generations.jsonl", "phase0_summary.json"):
        (tmp_path / "run" / name).unlink()
    async with viewed(tmp_path) as view:
        view.refresh()
        run = await ask(view.client, "/api/runs/run-0123")
    assert (run["summary"]["state"], run["summary"]["verdicts"]) == ("running", 0)
    assert run["notes"] == ["the run is not finished: repeat its command, which resumes it"]


async def test_copies_are_told_apart(redis: Redis, tmp_path: Path) -> None:
    published(redis, tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    change(tmp_path / "two", "generations.jsonl", "print(1 < 2)", "print(1 < 3)")
    async with viewed(tmp_path) as view:
        view.refresh()
        runs = await ask(view.client, "/api/runs")
        completions = {}
        for name, run in runs.items():
            path = f"/api/runs/{quote(name, safe='')}/samples/d1/p1/0"
            sample = await ask(view.client, path)
            completions[Path(run["folder"]).name] = sample["generation"]["completion"]
    assert len(runs) == 2
    assert all(name == "run-1" or name.startswith("run-1 (") for name in runs)
    assert {run["name"] for run in runs.values()} == {"mine"}
    assert "1 < 2" in completions["one"]
    assert "1 < 3" in completions["two"]


async def test_hostile_ids_are_shown_by_their_folder(tmp_path: Path) -> None:
    names = ["", "\x00x", "a/b?c#d", "x" * 2000, "<script>"]
    for number, name in enumerate(names):
        write_run(tmp_path / f"r{number}", {"<b>": "+"}, change={"run": name})
    async with viewed(tmp_path) as view:
        view.refresh()
        runs = await ask(view.client, "/api/runs")
        for name in runs:
            answer = await ask(view.client, f"/api/runs/{quote(name, safe='')}")
            assert answer["summary"]["verdicts"] == 1
    folders = {str(tmp_path / f"r{number}") for number in (0, 1, 3)}
    assert set(runs) == {"a/b?c#d", "<script>"} | folders


async def test_a_run_of_version_1(tmp_path: Path) -> None:
    shutil.copytree(FIXTURE, tmp_path / "v1")
    async with viewed(tmp_path) as view:
        view.refresh()
        ((name, run),) = (await ask(view.client, "/api/runs")).items()
        page = await ask(view.client, f"/api/runs/{name}/samples?limit=1")
        (row,) = page["samples"]
        place = f"{row['dataset']}/{quote(row['problem_id'], safe='')}/{row['sample_index']}"
        sample = await ask(view.client, f"/api/runs/{name}/samples/{place}")
        assert (await ask(view.client, f"/api/runs/{name}"))["notes"] == []
    assert run["verdicts"] == 58
    assert sample["outline"]["prompt"]
    assert sample["generation"]["completion"]


async def test_a_folder_at_another_filesystem(redis: Redis, tmp_path: Path) -> None:
    published(redis, tmp_path / "run")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "run"), "/viewed/run", recursive=True)
    async with viewed("memory://viewed") as view:
        view.refresh()
        for sample in (SampleId("d2", "q"), SampleId("d1", "p1", 1)):
            path = f"{sample.dataset}/{sample.problem_id}/{sample.sample_index}"
            answer = await ask(view.client, f"/api/runs/run-1/samples/{path}")
            assert answer["generation"]["problem_id"] == sample.problem_id
        memory.rm("/viewed", recursive=True)
        view.refresh()
        assert await ask(view.client, "/api/runs") == {}


def test_the_ledger_comes_first(redis: Redis, tmp_path: Path) -> None:
    """A run is shown from Redis as long as it is there, from its folder afterwards."""
    ledger = published(redis, tmp_path / "run")
    ingester = Ingester(redis)
    in_ledger = {"run-1"}
    folders = RunFolders([str(tmp_path)], ingester.database, in_ledger=lambda: in_ledger)

    def shown() -> list[tuple[str, bool]]:
        ingester.catch_up()
        folders._search_at = 0.0
        folders.refresh()
        with ingester.database.read() as connection:
            return [(run.run, run.folder is not None) for run in all_runs(connection)]

    assert shown() == [("run-1", False)]
    ledger.delete()
    in_ledger.clear()
    ingester.catch_up()
    assert shown() == [("run-1", True)]
    ingester.catch_up()  # it has no run of this name, and leaves this one alone
    with ingester.database.read() as connection:
        assert len(all_runs(connection)) == 1
    finished(redis, str(tmp_path / "run"))
    in_ledger.add("run-1")
    assert shown() == [("run-1", False)]
    assert shown() == [("run-1", False)]


def test_the_aggregator_shows_the_runs_below_its_roots_and_stops_cleanly(
    redis_server: RedisServer, redis: Redis, tmp_path: Path
) -> None:
    write_run(tmp_path / "outputs" / "a", {"d1": "++-"})
    (tmp_path / "aggregator").mkdir()
    roots = {"PLUMBLINE_OUTPUT_ROOTS": str(tmp_path / "outputs")}
    aggregator = Aggregator(redis_server.url, tmp_path / "aggregator", **roots)
    try:
        until_known(aggregator.url, "a-0123/samples/d1/p002/0")
        with urllib.request.urlopen(f"{aggregator.url}/api/runs", timeout=30) as answer:
            run = json.load(answer)["a-0123"]
        assert (run["verdicts"], run["folder"]) == (3, str(tmp_path / "outputs" / "a"))
        with urllib.request.urlopen(f"{aggregator.url}/metrics", timeout=30) as answer:
            assert "plumbline_samples{" not in answer.read().decode()
    finally:
        code = aggregator.terminate()
    assert code == 0
    assert "Traceback" not in aggregator.log.read_text()
    assert list(aggregator.temporary.iterdir()) == []


def test_links_that_lead_in_circles(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {"d1": "+"})
    (tmp_path / "latest").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / ".hidden").mkdir()
    shutil.copy(tmp_path / "a" / "run.json", tmp_path / ".hidden")
    assert [folder for folder, _ in find_runs(str(tmp_path))] == [str(tmp_path / "a")]
