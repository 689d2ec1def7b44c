"""Corpus of answers in many habits of models, each with the result of judging it.

``extraction_corpus/*.txt`` has cases of the form::

    === name
    function: the function that the tests call (or ``functions: a, b``)
    check: an expression that is true of a right answer
    input: ... and output: of a program on standard input, with "\\n" for line ends
    judged: right (the default), wrong, or nothing (no code is found)
    reason: where the code must be found, if that matters
    language: cpp, with ``has`` and ``lacks`` for parts of the code, any number of them
    prompt: text that a function's body continues, with "\\n" for line ends
    escapes: yes, if "\\u00a0", "\\r" and the like in the completion stand for the characters

    the completion

What counts is the behaviour of the extracted code, which runs here: all of it is our own.
"""

import codecs
import io
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.extraction import Extraction, extract
from shared.schemas import JudgedCode
from shared.statuses import ExtractionReason

FOLDER = Path(__file__).parent / "extraction_corpus"


@dataclass(frozen=True)
class Case:
    name: str
    fields: dict[str, list[str]]
    completion: str

    def get(self, key: str, default: str = "") -> str:
        return self.fields.get(key, [default])[0]

    @property
    def language(self) -> str:
        return self.get("language", "python")

    @property
    def functions(self) -> list[str]:
        names = self.get("functions") or self.get("function")
        return [name.strip() for name in names.split(",") if name.strip()]

    def extract(self) -> Extraction:
        return extract(self.completion, language=self.language, entry_point=self.functions)


def unescaped(text: str) -> str:
    return re.sub(
        r"\\(?:[rntf\\]|u[0-9a-f]{4})", lambda m: codecs.decode(m[0], "unicode_escape"), text
    )


def read(path: Path) -> list[Case]:
    cases = []
    for part in re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, completion = part.partition("\n\n")
        name, *lines = head.split("\n")
        fields = defaultdict(list)
        for line in lines:
            key, _, value = line.partition(": ")
            fields[key].append(value)
        completion = completion.removesuffix("\n").removesuffix("\n")
        if fields.get("escapes"):
            completion = unescaped(completion)
        cases.append(Case(f"{path.stem}: {name}", dict(fields), completion))
    return cases


CASES = [case for path in sorted(FOLDER.glob("*.txt")) for case in read(path)]


def output_of(code: str, given: str, monkeypatch: pytest.MonkeyPatch) -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8"))
        patch.setattr(sys, "stdout", out)
        namespace = {"__name__": "__main__", "open": lambda *_: sys.stdin}
        exec(compile(code, "<answer>", "exec", dont_inherit=True), namespace)
        out.flush()
    return out.buffer.getvalue().decode()


def is_right(case: Case, found: Extraction, monkeypatch: pytest.MonkeyPatch) -> bool:
    code = found.code
    if found.reason is ExtractionReason.BODY_ONLY:
        code = f"{unescaped(case.get('prompt')).rstrip()}\n{code}"
    try:
        if "input" in case.fields:
            printed = output_of(code, unescaped(case.get("input")), monkeypatch)
            return printed.split() == unescaped(case.get("output")).split()
        namespace: dict[str, object] = {"__name__": "answer"}
        exec(compile(code, "<answer>", "exec", dont_inherit=True), namespace)
        return bool(eval(case.get("check"), namespace))
    except Exception:  # noqa: BLE001 - whatever a wrong answer raises
        return False


def defect(case: Case, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What is wrong with the extraction of an answer."""
    found = case.extract()
    record = JudgedCode.of(found.code, found.reason, found.start)
    if record.read(case.completion) != found.code:
        return "the record of the code gives other code"
    judged = case.get("judged", "right")
    if (judged != "nothing") is not found.found:
        return "no code was found" if judged != "nothing" else f"code was found:\n{found.code}"
    if judged == "nothing":
        return None
    if found.reason != case.get("reason", found.reason):
        return f"the reason is {found.reason}"
    for part in map(unescaped, case.fields.get("has", [])):
        if part not in found.code:
            return f"lacks {part!r}:\n{found.code}"
    for part in map(unescaped, case.fields.get("lacks", [])):
        if part in found.code:
            return f"has {part!r}:\n{found.code}"
    if case.language == "python":
        right = is_right(case, found, monkeypatch)
        if right is not (judged == "right"):
            return f"judged {'right' if right else 'wrong'}:\n{found.code}"
    return None


def test_every_answer_is_judged_as_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = sys.getrecursionlimit()
    defects = {}
    for case in CASES:
        defects[case.name] = defect(case, monkeypatch)
        sys.setrecursionlimit(limit)  # an answer may raise it
    failing = {name: message for name, message in defects.items() if message}
    assert not failing, "\n\n".join(f"{name}: {message}" for name, message in failing.items())


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(CASES) >= 200
    assert len({case.name for case in CASES}) == len(CASES)
