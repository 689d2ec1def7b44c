"""Detection of leaks in every disguise that word n-grams can detect, and their location."""

from services.data.contamination import corpus
from tests.data.contamination.support import (
    PROMPT,
    SOLUTION,
    check,
    clean_rows,
    clean_text,
    one,
    write_jsonl,
    write_parquet,
)

DISGUISES = {
    "exact": PROMPT,
    "indented": PROMPT.replace("\n", "\n        "),
    "crlf": PROMPT.replace("\n", "\r\n"),
    "upper": PROMPT.upper(),
    "quoted": "> " + PROMPT.replace("\n", "\n> "),
    "one line": " ".join(PROMPT.split()),
    "no-break": PROMPT.replace(" ", "\u00a0"),
    "inside": f"{clean_text(5000)} {PROMPT} {clean_text(5000, 1)}",
}


def test_a_prompt_is_found_and_its_line_named(tmp_path):
    for name, text in DISGUISES.items():
        rows = clean_rows(9)
        rows[6]["text"] = text
        report = check(write_jsonl(tmp_path / "corpus.jsonl", rows))
        hit = one(report).statement.hit
        assert [problem.problem_id for problem in report.contaminated] == ["leaked"], name
        assert (hit.path, hit.row, hit.text) == (str(tmp_path / "corpus.jsonl"), 7, "statement")
        assert hit.share == one(report).statement.share == 1
        assert hit.excerpt.startswith("given a list of harbour fees return the three ships")
        assert one(report).documents == 1


def test_the_body_of_a_solution_contaminates_without_its_header(tmp_path):
    _, body = SOLUTION.split("\n", 1)
    for text, found in ((body, True), (body.replace("named", "x"), True), (body[:60], False)):
        path = write_jsonl(tmp_path / "corpus.jsonl", [*clean_rows(2), {"text": text}])
        assert one(check(path)).solutions.contaminated is found, text


CHAT = {"messages": [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "Ok."}]}


def test_chat_messages_in_json_lines(tmp_path):
    for suffix in (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".json"):
        path = write_jsonl(tmp_path / f"chat{suffix}", [*clean_rows(3), CHAT])
        assert one(check(path)).statement.hit.row == 4, suffix


def test_structs_and_lists_in_parquet(tmp_path):
    for leak in (CHAT, {"parts": [["x", PROMPT]]}, {"by_name": {"a": {"b": PROMPT}}}):
        rows = [{"id": 1, **leak}, {"id": 2, **leak}]
        path = write_parquet(tmp_path / "corpus.parquet", rows, row_group_size=1)
        problem = one(check(path))
        assert problem.statement.hit.row == 1, leak
        assert problem.documents == 2


def test_ngrams_do_not_reach_over_the_seam_of_two_texts(tmp_path):
    half = len(PROMPT.split()) // 2
    parts = [" ".join(PROMPT.split()[at : at + 12]) for at in range(0, 2 * half, 12)]
    report = check(
        write_jsonl(tmp_path / "corpus.jsonl", [{"parts": parts}, *({"p": p} for p in parts)])
    )
    assert one(report).documents == 0


def test_no_seam_of_a_text_file_hides_a_leak(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "PASSAGE", 3000)
    monkeypatch.setattr(corpus, "OVERLAP", 1000)
    for before in range(2900, 3100, 7):
        text = clean_text(1500)[:before]
        (tmp_path / "corpus.txt").write_text(f"{text} {PROMPT} {clean_text(1500)} {PROMPT}")
        report = check(tmp_path)
        assert one(report).statement.hit.share == 1, before
        assert report.documents == one(report).documents == 1


def test_the_document_with_most_of_a_problem_is_named_and_the_first_of_equals(tmp_path):
    half = " ".join(PROMPT.split()[:30])
    rows = [{"t": half}, *clean_rows(3), {"t": PROMPT}, {"t": PROMPT.upper()}]
    problem = one(check(write_jsonl(tmp_path / "corpus.jsonl", rows)))
    assert (problem.statement.hit.row, problem.documents) == (5, 3)


def test_the_report_does_not_depend_on_processes(tmp_path):
    for name in ("a", "b", "c"):
        rows = clean_rows(40, seed=ord(name))
        rows[ord(name) % 40]["text"] = PROMPT
        rows[7]["text"] = SOLUTION
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
        write_parquet(tmp_path / f"{name}.parquet", rows, row_group_size=7)
        (tmp_path / f"{name}.txt").write_text(clean_text(100) + PROMPT)
    together = check(tmp_path)
    assert check(tmp_path, processes=3) == together
    assert together.documents == 243
    assert one(together).documents == 15


def test_a_file_is_read_in_chunks_of_lines(tmp_path, monkeypatch):
    rows = clean_rows(200)
    rows[150]["text"] = PROMPT
    path = write_jsonl(tmp_path / "corpus.jsonl", rows)
    whole = check(path)
    for size in (97, 777, 5000):
        monkeypatch.setattr(corpus, "CHUNK", size)
        assert check(path) == whole
    assert one(whole).statement.hit.row == 151
