"""``report.html``: its data, and its escaping of everything that is not text."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from services.aggregator.ingest import Ingester
from services.aggregator.publish import publish
from services.aggregator.report import bundle, compact, write_report
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.finished_run import open_run
from shared.run_record import RunState
from shared.schemas import JudgedCode, SampleId
from shared.statuses import ExtractionReason, FinalStatus
from tests.aggregator.reports import ANSWER, allowed, data_of, finished, rows_of
from tests.aggregator.runs import ask, served
from tests.conftest import RedisServer
from tests.shared.ledgers import generation, put_meta, verdict


@pytest.fixture
def published(redis: Redis, tmp_path: Path) -> Path:
    publish(finished(redis, str(tmp_path / "run")))
    return tmp_path / "run"


def report(folder: Path, **bounds: int) -> tuple[Path, list[str]]:
    run = open_run(str(folder))
    with pytest.MonkeyPatch.context() as patched:
        for name, bound in bounds.items():
            patched.setattr(f"services.aggregator.report.{name.upper()}", bound)
        notes = write_report(run, OutputFolder(str(folder.parent)), "page.html")
    return folder.parent / "page.html", notes


def test_from_the_folder_alone_it_is_the_same(published: Path) -> None:
    page, notes = report(published)
    assert page.read_bytes() == (published / artifacts.REPORT).read_bytes()
    assert notes == []


def test_from_the_aggregators_index_it_is_the_same(redis: Redis, tmp_path: Path) -> None:
    ingester, ledger = Ingester(redis), finished(redis, str(tmp_path / "run"))
    assert ingester.index_of(ledger) is None
    ingester.catch_up()
    assert ingester.index_of(ledger) is ingester.database
    publish(ledger, index_of=ingester.index_of)
    page, _ = report(tmp_path / "run")
    assert page.read_bytes() == (tmp_path / "run" / artifacts.REPORT).read_bytes()


async def test_it_says_what_the_api_says(redis: Redis, published: Path) -> None:
    async with served(redis) as client:
        answer = await ask(client, "/api/runs/run-1")
        sample = await ask(client, "/api/runs/run-1/samples/d1/p1/1")
    data = data_of(published / artifacts.REPORT)
    for name in ("summary", "datasets", "metrics", "slices"):
        assert data["run"][name] == answer[name]
    assert data["run"]["facts"]["config"] == answer["facts"]["config"]
    texts = rows_of(data)[SampleId("d1", "p1", 1)]["texts"]
    outline = texts["outline"]
    assert (outline["prompt"], outline["tags"]) == ("a" * 600, ["dp", "graphs"])
    assert sample["code"] == {"text": "print(1 < 2)", "found": "fenced"}
    seen = {k: v for k, v in sample["verdict"].items() if k not in ("case_codes", "worker", "code")}
    assert texts == {**sample, "verdict": seen, "answers": []}


def test_the_policy_names_the_one_script_and_the_one_style(published: Path) -> None:
    page = (published / artifacts.REPORT).read_text("utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        **allowed(page),
    }
    assert page.index("Content-Security-Policy") < min(page.index("<style"), page.index("<script"))
    assert page.count("<script") == 2
    assert not re.search(r'(?:src|href)="(?!#)', page)


@given(st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.integers()))
def test_data_hold_nothing_that_markup_or_a_script_would_end_at(value: object) -> None:
    text = compact(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == value


def test_hostile_texts_stay_data(redis: Redis, tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!-- &amp; \u2028"
    publish(finished(redis, str(tmp_path / "run"), name=evil, model=evil))
    page = tmp_path / "run" / artifacts.REPORT
    assert page.read_text("utf-8").count("<script") == 2
    assert data_of(page)["run"]["summary"]["name"] == evil


def test_passwords_of_urls_are_left_out(redis: Redis, tmp_path: Path) -> None:
    publish(finished(redis, str(tmp_path / "run"), base="redis://me:geheim@host/0"))
    assert "geheim" not in (tmp_path / "run" / artifacts.REPORT).read_text("utf-8")


@pytest.fixture(scope="module")
def many(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with 240 samples, of which one is a time-out."""
    folder = tmp_path_factory.mktemp("runs") / "many"
    with Redis.from_url(redis_server.url) as redis:
        redis.flushall()
        publish(finished(redis, str(folder)))
    made, judged = [], []
    for number in range(240):
        sample = SampleId("d1", f"p{number % 12:02}", number // 12)
        made.append(generation(sample, ANSWER + "x" * 1000))
        status = FinalStatus.TIMEOUT if number == 77 else FinalStatus.SUCCESS
        code = JudgedCode.of(
            "print(1 < 2)", ExtractionReason.FENCED, made[-1].completion.index("print")
        )
        judged.append(verdict(made[-1], status, method="batch", code=code))
    out = OutputFolder(str(folder))
    out.write_jsonl(artifacts.GENERATIONS, made)
    out.write_jsonl(artifacts.VERDICTS, judged)
    return folder


def test_the_figures_are_over_all_samples_and_rows_over_some(many: Path) -> None:
    page, notes = report(many, rows=20)
    data = data_of(page)
    assert data["run"]["datasets"]["d1"]["judged"] == 240
    assert len(rows_of(data)) == 20
    assert notes[0] == "20 of 240 samples are listed; the figures cover all of them."
    assert data["notes"] == notes


def test_texts_up_to_the_bound_of_each_status_in_turn(many: Path) -> None:
    page, notes = report(many, text_bytes=40_000)
    with_texts = {one: row for one, row in rows_of(data_of(page)).items() if row["texts"]}
    assert 3 <= len(with_texts) <= 20
    assert FinalStatus.TIMEOUT in {row["final_status"] for row in with_texts.values()}
    assert len(page.read_bytes()) < 40_000 + len(report(many, text_bytes=0)[0].read_bytes())
    assert f"failed case are included for {len(with_texts)} samples" in notes[0]


def test_syntax_is_highlighted_of_the_first_samples(many: Path) -> None:
    page, notes = report(many, highlighted=3)
    rows = [row["texts"] for row in rows_of(data_of(page)).values()]
    assert sum(bool(row["marks"]["code"]) for row in rows) == 3
    assert sum(bool(row["marks"]["completion"]) for row in rows) == 3
    assert notes == ["Syntax is highlighted for 3 samples."]


def test_the_middle_of_a_long_text_is_left_out(many: Path) -> None:
    page, _ = report(many, characters=100)
    texts = next(row["texts"] for row in rows_of(data_of(page)).values())
    assert "characters left out" in texts["generation"]["completion"]
    assert texts["code"]["text"] == "print(1 < 2)"


def test_a_folder_of_an_earlier_version(published: Path) -> None:
    (published / artifacts.PROBLEMS).unlink()
    (published / artifacts.SLICES).unlink()
    page, notes = report(published)
    data = data_of(page)
    assert data["run"]["slices"] is None
    assert len(rows_of(data)) == 4
    assert "no problems.jsonl" in notes[0]


def test_a_torn_last_line_is_named(published: Path) -> None:
    path = published / artifacts.VERDICTS
    path.write_bytes(path.read_bytes()[:-20])
    page, notes = report(published)
    assert len(rows_of(data_of(page))) == 3
    assert "torn last line" in notes[-1]


@pytest.mark.parametrize("name", [artifacts.VERDICTS, artifacts.PROBLEMS, artifacts.GENERATIONS])
def test_a_line_that_is_invalid_leaves_the_old_page(published: Path, name: str) -> None:
    before = (published / artifacts.REPORT).read_bytes()
    path = published / name
    path.write_text('{"dataset": 3}\n' + path.read_text("utf-8"), "utf-8")
    with pytest.raises(OutputError, match=f"{name}:1"):
        write_report(open_run(str(published)), OutputFolder(str(published)), artifacts.REPORT)
    assert (published / artifacts.REPORT).read_bytes() == before


def test_a_run_without_samples(redis: Redis, tmp_path: Path) -> None:
    ledger = finished(redis, str(tmp_path / "run"))
    put_meta(ledger, plan={"datasets": []})
    publish(ledger)
    assert ledger.state() is RunState.COMPLETE
    assert rows_of(data_of(tmp_path / "run" / artifacts.REPORT)) == {}


def test_modules_become_one_script() -> None:
    modules = {
        "a": 'import { f, g } from "./b.js";\nimport * as b from "./b.js";\nf(b.g());\n',
        "b": "export const f = (x) => x;\nexport async function g() {}\nconst h = 1;\n",
        "unused": "export const no = 1;\n",
    }
    script = bundle(modules, "a")
    assert "return { f, g };" in script
    assert re.search(r"const \{\s*f, g\s*\} = b_js;", script)
    assert script.index("const b_js") < script.index("const a_js")
    assert "unused" not in script
    assert not re.search(r"^(import|export)", script, re.M)
