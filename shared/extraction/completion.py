"""Code extraction: find the program in a completion.

Pure functions that never raise and never run code.
"""

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from shared.extraction.choice import Extraction, choose, combine
from shared.extraction.fences import Block, find_blocks
from shared.extraction.languages import Language, language_of
from shared.extraction.python_source import (
    MAX_PARSED_CHARACTERS,
    Source,
    compiles,
    parse,
    visible,
)
from shared.extraction.turns import answers, before_next_question
from shared.statuses import ExtractionReason

_ANSWER_TAG = re.compile(r"^[ \t]*\**<(answer|solution|final_answer)>", re.I | re.MULTILINE)
_CONTINUATION = re.compile(r"\s|\Z|[)\]}]|(else|elif|except|finally)\b")
_TRIPLE_QUOTE = re.compile(r"\"\"\"|'''")
_MAYBE_CODE = re.compile(r"\b(?:def|class|import|lambda|print)\b|=|\w\(")


def extract(
    completion: str,
    *,
    language: str = "python",
    entry_point: str | Collection[str] | None = None,
) -> Extraction:
    """Extract the answer of a completion.

    1. Keep the assistant's answer, without reasoning, tokens and other turns
       (``shared.extraction.turns``); of that the part before a question that the model made up,
       or in the last ``<answer>`` tag, if it has a program.
    2. Choose one of the fenced blocks (``shared.extraction.fences``), with what it needs of others
       (``shared.extraction.choice``). A fenced block is a whole
       program. Code before a lone fence, which closes a block that the prompt opened, is a block.
    3. Without a fence, Python is the whole text if that is a program; a text that continues a
       function (``body_only``, truncated where the body ends); else the lines within the prose that
       are Python. In other languages it is the text from the first line of a program to the last.
    4. If no block can be the answer, blocks with another label and the text outside of blocks are
       tried, and count only if they define what the tests call (or anything, or read input).

    Code is returned unchanged, unless it is no program and becomes one without its common
    indentation, invisible characters and HTML's entities. Mistakes are never fixed. Python texts
    over 200 KB are not parsed.

    Args:
        completion: The model's whole text; any string.
        language: SandboxFusion's name of the wanted language.
        entry_point: Name of the function that the tests call, or names of all of them, if known.

    Returns:
        The code, with its offset in the completion if it is one contiguous part of it; if there is
        none, the reason.
    """
    if not completion.strip():
        return Extraction("", ExtractionReason.EMPTY)
    text = completion
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    names = [entry_point] if isinstance(entry_point, str) else entry_point or ()
    search = _Search(language_of(language), frozenset(filter(None, names)))
    parts = answers(text)
    best: Extraction | None = None
    for choice in chain.from_iterable(map(search.in_answer, parts)):
        best = choice if choice.sure else best or choice
        if choice.sure:
            break
    if best is None or not best.code.strip():
        prose = bool(parts) and not any("```" in part or "~~~" in part for part in parts)
        reason = ExtractionReason.PROSE_ONLY if prose else ExtractionReason.NO_CODE_BLOCK
        return Extraction("", reason)
    start = completion.rfind(best.code)
    return replace(best, start=start if start >= 0 else None)


@dataclass(frozen=True, slots=True)
class _Search:
    """One search for an answer: the first sure choice is it, or else the first choice."""

    language: Language
    names: frozenset[str]

    def in_answer(self, text: str) -> Iterator[Extraction]:
        """Search the text before a question that the model asks itself, then the whole text."""
        before = before_next_question(text)
        for choice in self.in_tags(before) if before is not None else ():
            if choice.sure and choice.reason != ExtractionReason.UNCLOSED_FENCE:
                yield choice
        yield from self.in_tags(text)

    def in_tags(self, text: str) -> Iterator[Extraction]:
        """Search the last ``<answer>``, then the whole text."""
        if openers := list(_ANSWER_TAG.finditer(text)):
            opener = openers[-1]
            answer, _, _ = text[opener.end() :].partition(f"</{opener[1]}>")
            yield from (choice for choice in self.in_text(answer) if choice.sure)
        yield from self.in_text(text)

    def in_text(self, text: str) -> Iterator[Extraction]:
        blocks = find_blocks(text, self.language)
        if not blocks:
            choice = self._whole(text) or self._in_prose(text)
        elif blocks[0].label or not (choice := self._begun_by_prompt(text, blocks[0])):
            choice = self._choose(text, blocks)
            if not (choice and choice.sure):
                yield from self._elsewhere(text, blocks)
        if choice:
            yield choice

    def _choose(self, text: str, blocks: Sequence[Block]) -> Extraction | None:
        return choose(text, blocks, self.language, self.names)

    def _begun_by_prompt(self, text: str, first: Block) -> Extraction | None:
        """Search a text whose first fence closes a block which the prompt opened."""
        head = text[: first.opening].rstrip("\n")
        begun = self._whole(head)
        if begun is None:
            return None
        fence = f"```{min(self.language.labels)}\n"
        # A body needs the prompt's function, unless a block defines a function.
        is_body = begun.reason is ExtractionReason.BODY_ONLY
        choice = self._choose(fence + text, find_blocks(fence + text, self.language)[is_body:])
        if choice is None or choice.code == begun.code:
            return begun
        return begun if is_body and not (self.names and choice.sure) else choice

    def _whole(self, text: str) -> Extraction | None:
        """A text that is a program or a function's body, apart from blank lines around it."""
        text = text.strip("\n")
        first, _, rest = text.partition("\n")
        if self.language.owns(first.strip().lower()):  # as behind a fence
            text = rest
        if code := self.language.bare(text):
            return Extraction(code, ExtractionReason.BARE_CODE)
        if self.language.is_python and len(text) <= MAX_PARSED_CHARACTERS:
            for version in dict.fromkeys((text, visible(text))):
                if program := _bare_program(version):
                    sure = self._is_answer(program)
                    return Extraction(program, ExtractionReason.BARE_CODE, sure=sure)
                if body := _function_body(version):
                    return Extraction(body, ExtractionReason.BODY_ONLY)
        return None

    def _is_answer(self, code: str) -> bool:
        """Whether code defines what the tests call, if that is known; else anything, or reads."""
        if not self.language.is_python:
            main = None if self.names else self.language.main
            return main is None or main.search(code) is not None
        source = Source(code)
        return not self.names.isdisjoint(source.names) if self.names else source.has_substance

    def _in_prose(self, text: str) -> Extraction | None:
        """The lines that are Python with the most substance, and what they need of others."""
        if not self.language.is_python or len(text) > MAX_PARSED_CHARACTERS:
            return self._whole(text) if self.language.main else None
        text = visible(text)
        sources = [Source(run) for run in _code_runs(text)]
        sources = [source for source in sources if source.tree and self._rank(source)]
        if not sources:
            return None
        best = max(sources, key=lambda s: (self._rank(s), s.code.count("\n"), sources.index(s)))
        sure = self._is_answer(best.code)
        if whole := combine(sources, sources.index(best), self.names):
            return Extraction(whole, ExtractionReason.COMBINED, sure=sure)
        return Extraction(best.code, ExtractionReason.PROSE_HEURISTIC, sure=sure)

    def _rank(self, source: Source) -> int:
        if not self.names.isdisjoint(source.names):
            return 3
        if source.has_substance:
            return 2
        kinds = (ast.Import, ast.ImportFrom, ast.Assign)
        return int(any(isinstance(statement, kinds) for statement in source.body))

    def _elsewhere(self, text: str, blocks: Sequence[Block]) -> Iterator[Extraction]:
        """Look for the answer where no block can be it: behind other labels, outside of blocks."""
        others = [replace(b, label="") for b in blocks if not self.language.owns(b.label)]
        pieces, position = [], 0
        for block in blocks:
            pieces.append(text[position : block.opening])
            position = block.end
        outside = "\n".join([*pieces, text[position:]])
        for other in (self._choose(text, others), self._in_prose(outside)):
            if other and other.sure and self._is_answer(other.code):
                yield other


# Code without fences


def _bare_program(text: str) -> str | None:
    """The text without common indentation, if all of it is a program."""
    indented = text[:1] in (" ", "\t")
    source = Source(textwrap.dedent(text) if indented else text)
    return source.code if source.is_program and (source.has_substance or not indented) else None


def _function_body(text: str) -> str | None:
    """The text as the body of a function whose head is in the prompt, truncated at its end."""
    return next((c.rstrip() + "\n" for c in _possible_bodies(text) if _is_body(c)), None)


def _possible_bodies(text: str) -> Iterator[str]:
    lines = text.split("\n")
    outside = (i for i, line in enumerate(lines) if i and line[:1] not in ("", " ", "\t", "#"))
    cut = "\n".join(lines[: next(outside, len(lines))])
    if text[:1] in (" ", "\t"):
        yield from (text, cut)
        return
    # A server that strips completions removed the first line's indentation.
    yield "    " + cut
    yield textwrap.indent(_leading_statements(lines), "    ")


def _leading_statements(lines: Sequence[str]) -> str:
    kept: list[str] = []
    for unit in _units(lines):
        if parse("def _():\n" + textwrap.indent(unit, "    ") + "\n    pass") is None:
            break
        kept.append(unit)
    return "\n".join(kept)


def _is_body(text: str) -> bool:
    if "return" not in text and "yield" not in text:
        return False
    return compiles("def _():\n" + text) and not compiles(textwrap.dedent(text))


def _code_runs(text: str) -> list[str]:
    """The parts of a text that are Python: runs of lines, and indented paragraphs."""
    if not _MAYBE_CODE.search(text):
        return []
    lines = text.split("\n")
    return list(dict.fromkeys([*_runs(lines), *_indented(lines)]))


def _runs(lines: Sequence[str]) -> Iterator[str]:
    """Join adjacent top-level statements."""
    run: list[str] = []
    for unit in (*_units(lines), "end of text"):
        source = Source(unit)
        if source.has_statements or (source.tree and not source.body):
            run.append(unit)
        elif run:
            yield "\n".join(run).strip("\n")
            run = []


def _indented(lines: Sequence[str]) -> Iterator[str]:
    """Paragraphs that are indented as a whole, without their indentation."""
    part: list[str] = []
    for line in [*lines, "end"]:
        if line[:1] in ("", " ", "\t"):
            part.append(line)
            continue
        code = textwrap.dedent("\n".join(part)).strip("\n")
        part = []
        if code and Source(code).has_statements:
            yield code


def _units(lines: Sequence[str]) -> Iterator[str]:
    """Split lines where a top-level statement may begin."""
    unit: list[str] = []
    in_string = False
    for line in lines:
        decorated = bool(unit) and unit[-1].startswith("@")
        if unit and not in_string and not decorated and not _CONTINUATION.match(line):
            yield "\n".join(unit)
            unit = []
        unit.append(line)
        in_string ^= len(_TRIPLE_QUOTE.findall(line)) % 2 == 1
    yield "\n".join(unit)


# verl's rule


def extract_verl(completion: str) -> Extraction:
    """Extract exactly as verl 0.9.1 does before it runs test cases.

    The code is the text from the last "```python" up to the next fence; else the text between the
    first two fences, without a first line that has only letters; without any fence there is no
    code. Fences may be anywhere in a line. Source:
    ``verl/utils/reward_score/sandbox_fusion/__init__.py``, ``compute_score``.
    """
    labelled = "```python" in completion
    mark, find = ("```python", completion.rfind) if labelled else ("```", completion.find)
    if mark not in completion:
        empty = not completion.strip()
        return Extraction("", ExtractionReason.EMPTY if empty else ExtractionReason.NO_CODE_BLOCK)
    start = find(mark) + len(mark)
    code, fence, _ = completion[start:].partition("```")
    first_line, newline, rest = code.partition("\n")
    if not labelled and newline and first_line.strip().isalpha():
        start, code = start + len(first_line) + 1, rest
    reason = ExtractionReason.FENCED if labelled else ExtractionReason.UNLABELLED
    return Extraction(code, reason if fence else ExtractionReason.UNCLOSED_FENCE, start)
