"""Filters, facets, searches and groups of failures: what plain Python finds in the same rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.aggregator.index.database import Database, open_database
from services.aggregator.index.queries import (
    CHOICES,
    MIB,
    FailuresQuery,
    Range,
    SampleFilter,
    SampleQuery,
    Sort,
    choices,
)
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.samples import facets, failure_groups, samples_page
from services.aggregator.index.search import PLACES, SEARCHED, SHORTEST, sample_texts, searchable
from services.aggregator.index.signatures import signature
from services.aggregator.index.writer import IndexWriter, KnownRun
from shared.ledger import RunProgress
from shared.outlines import ProblemOutline
from shared.schemas import FailedCase, JudgedCode, ProblemFacts, SampleId, is_encodable
from shared.statuses import ExtractionReason, FinalStatus
from tests.aggregator.runs import put
from tests.shared.ledgers import generation, verdict

SORTS: tuple[Sort, ...] = Sort.__args__  # type: ignore[attr-defined]
Texts = tuple[str, str]
Made = tuple[SampleRow, Texts, str]

# Few values, so that filters match; letters whose case Unicode folds, but ASCII does not.
_WORDS = st.text(st.sampled_from("aAbÄß\"*%_\\'\0\x02\ud800😀 \n-,"), max_size=6)
_NUMBER = st.sampled_from([None, 0.0, 0.5, 1.0, 7.25])
_COUNT = st.sampled_from([None, 0, 1, 5])


@st.composite
def made_samples(draw: st.DrawFn) -> list[Made]:
    made = []
    for number in range(draw(st.integers(0, 14))):
        sample = SampleId(draw(st.sampled_from(["d1", "d,2"])), f"P{number // 2}a", number % 2)
        completion = generation(
            sample,
            draw(_WORDS),
            output_tokens=draw(_COUNT),
            gen_time=draw(_NUMBER),
            finish_reason=draw(st.sampled_from([None, "stop", "length"])),
        )
        status = draw(st.sampled_from(FinalStatus))
        stderr = draw(_WORDS)
        code = JudgedCode.of("x", draw(st.sampled_from(list(ExtractionReason)[:3])), 0)
        judged = verdict(
            completion,
            status,
            detail=draw(st.sampled_from([None, "SIGSEGV", "a_b, 50%"])),
            pass_ratio=draw(st.sampled_from([0.0, 0.5, 1.0])),
            total_judge_time=draw(_NUMBER) or 0.0,
            cpu_time=draw(_NUMBER),
            peak_memory=draw(st.sampled_from([None, 0, MIB, 5 * MIB + 1])),
            attempts=draw(_COUNT) or 0,
            flipped=draw(st.integers(0, 1)),
            judged_at=draw(_NUMBER),
            code=draw(st.sampled_from([None, code])),
            first_failed_case=FailedCase(case_index=0, status=status, stderr=stderr),
        )
        tags = draw(st.sampled_from([(), ("dp",), ("dp", "a,b")]))
        facts = ProblemFacts(draw(st.sampled_from(["", "hard"])), tags, 1, draw(_COUNT))
        made.append(
            (
                SampleRow.of(judged, completion, facts),
                sample_texts(judged, completion),
                f"Q{number // 2}ä",
            )
        )
    return made


_RANGES = st.tuples(_NUMBER, _NUMBER).map(
    lambda both: Range(*sorted(both)) if None not in both else Range(*both)
)
FILTERS = st.builds(
    SampleFilter,
    status=st.lists(st.sampled_from(FinalStatus), max_size=4).map(tuple),
    dataset=st.sampled_from([(), ("d1",), ("d,2", "none")]),
    difficulty=st.sampled_from([(), (None,), ("hard",)]),
    tag=st.sampled_from([(), (), (None,), ("a,b",), ("dp", None)]),
    detail=st.sampled_from([(), (), (None,), ("SIGSEGV",)]),
    finish=st.sampled_from([(), (), (None, "stop")]),
    extraction=st.sampled_from([(), (), (None,), ("fenced", "combined")]),
    tokens=st.none() | _RANGES,
    gen_time=st.none() | _RANGES,
    judge_time=st.none() | _RANGES,
    pass_ratio=st.none() | _RANGES,
    cpu=st.none() | _RANGES,
    memory=st.none() | _RANGES,
    attempts=st.none() | _RANGES,
    prompt_length=st.none() | _RANGES,
    flipped=st.sampled_from([None, None, "0", "1"]),
    q=st.sampled_from(["", "", "p1", "_", "0%", "segv"]),
    text=st.none() | _WORDS.filter(lambda text: len(text) >= SHORTEST and is_encodable(text)),
    places=st.sets(st.sampled_from(PLACES), min_size=1).map(tuple),
)
# Any one filter, or several at once, of which few samples are left.
SOME_FILTERS = st.one_of(
    FILTERS,
    st.tuples(FILTERS, st.sets(st.sampled_from(list(SampleFilter.model_fields)), max_size=2)).map(
        lambda both: SampleFilter(**{name: getattr(both[0], name) for name in both[1]})
    ),
)


def matches(wanted: SampleFilter, made: Made, besides: str = "") -> bool:
    """The filter in plain Python."""
    row, texts, prompt = made
    values = {name: getattr(row, column) for name, column in CHOICES.items()}
    for name, value in values.items():
        has = set(value) if isinstance(value, list) else {value}
        has = {one or None for one in has or {None}}
        if name != besides and getattr(wanted, name) and not has & set(getattr(wanted, name)):
            return False
    memory = None if row.peak_memory is None else row.peak_memory / 2**20
    figures = {
        "tokens": row.output_tokens,
        "gen_time": row.gen_time,
        "judge_time": row.total_judge_time,
        "pass_ratio": row.pass_ratio,
        "cpu": row.cpu_time,
        "memory": memory,
        "attempts": row.attempts,
        "prompt_length": row.prompt_length,
    }
    for name, value in figures.items():
        if (bounds := getattr(wanted, name)) is None or bounds == Range():
            continue
        low = -1 if bounds.low is None else bounds.low
        high = 10**9 if bounds.high is None else bounds.high
        if value is None or not low <= value <= high:
            return False
    if wanted.flipped is not None and wanted.flipped != str(row.flipped):
        return False
    if wanted.group is not None and wanted.group != row.failure_id:
        return False
    q = (wanted.q or "").lower()
    if q not in row.problem_id.lower() and q not in (row.detail or "").lower():
        return False
    found = dict(zip(PLACES, (prompt, *texts), strict=True))
    return not wanted.text or any(
        searchable(wanted.text) in searchable(found[place]) for place in wanted.places or PLACES
    )


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = open_database(tmp_path_factory.mktemp("index"))
    yield database
    database.close()


def fill(database: Database, made: Sequence[Made]) -> tuple[IndexWriter, KnownRun]:
    """A run with these samples alone, beside one whose texts would match as well."""
    writer = IndexWriter(database)
    for old in writer.runs().values():
        writer.drop_run(old)
    for name in ("other", "run-1"):
        writer.add_run(RunProgress(name, "i", "running", "0", 0, 0), [])
        run = writer.runs()[name]
        prompts = {(row.dataset, row.problem_id): prompt for row, _, prompt in made}
        writer.load_outlines(run, [outline(*key, prompt) for key, prompt in prompts.items()])
        put(database, run, [(row, texts) for row, texts, _ in made])
    return writer, run


def outline(dataset: str, problem_id: str, prompt: str) -> ProblemOutline:
    return ProblemOutline(dataset=dataset, problem_id=problem_id, prompt=prompt)


def sample(row: SampleRow) -> SampleId:
    return SampleId(row.dataset, row.problem_id, row.sample_index)


def listed(database: Database, run: KnownRun, **query: Any) -> list[SampleRow]:
    rows: list[SampleRow] = []
    while True:
        with database.read() as connection:
            page = samples_page(connection, run.id, SampleQuery(**query, offset=len(rows)))
        rows += page.samples
        if page.next is None:
            return rows


def found(database: Database, run: KnownRun, wanted: SampleFilter) -> list[SampleRow]:
    return listed(database, run, **dict(wanted), limit=5)


@settings(max_examples=40, deadline=None)
@given(made_samples(), st.lists(SOME_FILTERS, min_size=4, max_size=4), st.data())
def test_filters_facets_and_groups_are_what_python_finds(
    database: Database, made: list[Made], filters: list[SampleFilter], data: st.DataObject
) -> None:
    _, run = fill(database, made)
    groups = [row.failure_id for row, _, _ in made if row.failure_id]
    if groups:
        filters.append(SampleFilter(group=data.draw(st.sampled_from(groups))))
    for wanted in filters:
        sort, order = data.draw(st.sampled_from(SORTS)), data.draw(st.sampled_from(["asc", "desc"]))
        expected = [row for row, *rest in made if matches(wanted, (row, *rest))]
        page = listed(database, run, **dict(wanted), sort=sort, order=order, limit=3)
        assert sorted(map(sample, page)) == sorted(map(sample, expected))
        keys = [_key(row, sort) for row in page]
        assert keys == sorted(keys, reverse=order == "desc")
        with database.read() as connection:
            counted = facets(connection, run.id, wanted)
            grouped = failure_groups(connection, run.id, FailuresQuery(**dict(wanted), limit=100))
        assert counted.samples == len(expected)
        for name in CHOICES:
            counts = {
                count.value: count.samples for count in counted.facets[name].counts if count.samples
            }
            assert counts == _counts(name, wanted, made)
        failures = Counter(row.failure_id for row in expected if row.failure_id)
        assert {one.id: one.samples for one in grouped.groups} == dict(failures)
        sizes = [one.samples for one in grouped.groups]
        assert sizes == sorted(sizes, reverse=True)
        assert (grouped.samples, grouped.total) == (sum(sizes), len(sizes))
        for group in grouped.groups:
            assert {row.failure_id for row in group.examples} == {group.id}
            assert all(row in expected for row in group.examples)


def _key(row: SampleRow, sort: Sort) -> Any:
    if sort == "problem":
        return sample(row)
    value = getattr(row, "final_status" if sort == "status" else sort)
    return -1 if value is None else value


def _counts(name: str, wanted: SampleFilter, made: list[Made]) -> dict[str | None, int]:
    counts: Counter[str | None] = Counter()
    for one in made:
        if matches(wanted, one, besides=name):
            value = getattr(one[0], CHOICES[name])
            counts.update(value or [None] if isinstance(value, list) else [value or None])
    return dict(counts)


TEXTS = ("def f(x):\n    return X.sort()", "Traceback\nIndexError: list index out of range")


def one_sample(texts: Texts, prompt: str = "Add Ünits.") -> list[Made]:
    made = generation(SampleId("d1", "p1"), texts[0])
    return [(SampleRow.of(verdict(made), made, ProblemFacts()), texts, prompt)]


def times_found(database: Database, run: KnownRun, text: str, *places: Any) -> int:
    return len(found(database, run, SampleFilter(text=text, places=places or PLACES)))


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("indexerror", ("stderr",)),
        ("RETURN x.s", ("completion",)),
        (":\n ", ("completion",)),
        ("Ünits", ("prompt",)),
        ("(x)", ("completion",)),
    ],
)
def test_a_text_is_found_where_it_is_and_nowhere_else(
    database: Database, text: str, places: tuple[str, ...]
) -> None:
    _, run = fill(database, one_sample(TEXTS))
    assert [place for place in PLACES if times_found(database, run, text, place)] == list(places)
    assert times_found(database, run, text) == 1


@pytest.mark.parametrize(
    "text",
    ["ünits", "zzz", "indexError list", '"def"', "de*", "a OR b", "NEAR(", "{stderr}:f", "(x\0"],
)
def test_a_text_that_is_not_there_is_not_found(database: Database, text: str) -> None:
    """Operators of the query language are only characters."""
    _, run = fill(database, one_sample(TEXTS))
    assert times_found(database, run, text) == 0


def test_of_a_long_text_both_ends_are_found(database: Database) -> None:
    text = "begin " + "x" * 2 * SEARCHED + "middle" + "y" * 2 * SEARCHED + " end"
    _, run = fill(database, one_sample((text, "")))
    assert [times_found(database, run, part) for part in ("begin", "end", "middle")] == [1, 1, 0]


def test_texts_that_were_replaced_or_removed_are_not_found(database: Database) -> None:
    writer, run = fill(database, one_sample(TEXTS))
    (old,) = found(database, run, SampleFilter())
    put(database, run, [(old, ("print(1)", ""))])
    writer.load_outlines(run, [outline("d1", "p1", "Subtract.")])
    for text, times in {"sort": 0, "Units": 0, "print": 1, "subtract": 1}.items():
        assert times_found(database, run, text) == times, text
    for known in writer.runs().values():
        writer.drop_run(known)
    with database.read() as connection:
        for table in ("records", "problems", "sample_search", "prompt_search"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0, table


# Signatures.


def failed(status: FinalStatus, detail: str | None = None, **case: Any) -> str | None:
    found = FailedCase(case_index=0, status=status, **case)
    completion = generation("p1")
    return signature(verdict(completion, status, detail=detail, first_failed_case=found))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"stderr": "at 0x7f12\nKeyError: 7"}, {"stderr": "x\nKeyError: -12.5\n"}),
        (
            {"stderr": "ValueError: invalid literal for int() with base 10: 'a 1'"},
            {"stderr": "ValueError: invalid literal for int() with base 10: '77 x y'"},
        ),
        (
            {"stderr": "TypeError: <object at 0x7fb1> is not [1, 2, 3]"},
            {"stderr": "TypeError: <object at 0xa> is not [4, 5]"},
        ),
    ],
)
def test_failures_that_differ_in_numbers_alone_are_one_group(one: Any, other: Any) -> None:
    status = FinalStatus.RUNTIME_ERROR
    assert failed(status, **one) == failed(status, **other)


def test_failures_of_other_kinds_are_other_groups() -> None:
    wrong, error = FinalStatus.WRONG_ANSWER, FinalStatus.RUNTIME_ERROR
    outputs = {"expected": "1\nYES\n"}
    found = [
        failed(wrong, **outputs, actual="1\nNO\n"),
        failed(wrong, **outputs, actual="1\n"),
        failed(wrong, **outputs, actual=""),
        failed(wrong, **outputs, actual="1\nYES\nNO"),
        failed(error, stderr="NameError: name 'math' is not defined"),
        failed(error, stderr="NameError: name 'heapq' is not defined"),
        failed(error, detail="SIGSEGV"),
        failed(FinalStatus.TIMEOUT),
        failed(FinalStatus.TIMEOUT, detail="wall_guard"),
    ]
    assert found[0] == "wrong_answer; expected `YES`, got `NO`"
    assert found[1] == "wrong_answer; expected `YES`, got nothing more"
    assert found[3] == "wrong_answer; expected nothing more, got `NO`"
    assert found[4] == "runtime_error; NameError: name 'math' is not defined"
    assert len(set(found)) == len(found)
    traced = 'Traceback (most recent call last):\n  File "<test>", line 9, in check\n    {}\n{}'
    right, none = "assert candidate([2, 3]) == 5", "assert candidate([]) is None"
    found = [
        failed(wrong, actual="7", stderr=traced.format(right, "AssertionError\n")),
        failed(wrong, actual="None", stderr=traced.format(right, "AssertionError\n")),
        failed(wrong, actual="0", stderr=traced.format(none, "AssertionError\n")),
        failed(error, stderr=traced.format("return a[i]", "IndexError: index")),
        failed(error, stderr=traced.format("return b[-1]", "IndexError: index")),
    ]
    assert found[0] == "wrong_answer; AssertionError, at `assert candidate([N …]) == N`, got `N`"
    assert found[3] == "runtime_error; IndexError: index, at `return a[i]`"
    assert len(set(found)) == len(found)
    assert signature(verdict(generation("p1"))) is None


@given(st.text(st.sampled_from("'\"0x9fN /-. \n\ud800…"), max_size=300))
def test_a_signature_is_short_and_storable(text: str) -> None:
    for status in (FinalStatus.RUNTIME_ERROR, FinalStatus.WRONG_ANSWER):
        found = failed(status, detail=text, stderr=text, expected=text, actual="1")
        assert found is not None
        assert len(found) <= 240
        found.encode()


# Parameters.


@given(st.lists(st.none() | st.text(st.sampled_from("a,%-ü"), min_size=1), min_size=1, max_size=9))
def test_any_values_can_be_listed(values: list[str | None]) -> None:
    def escaped(value: str | None) -> str:
        return "-" if value is None else quote(value).replace("-", "%2D")

    assert choices(",".join(map(escaped, values))) == tuple(dict.fromkeys(values))


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("1..2", Range(1, 2)),
        ("0.5..", Range(0.5)),
        ("..-1e3", Range(None, -1000)),
        ("5..5", Range(5, 5)),
    ],
)
def test_ranges(text: str, bounds: Range) -> None:
    assert Range.parse(text) == bounds
