"""Code extraction: find the program in a completion.

Pure functions that never raise and never run code.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from shared.extraction.bare import bare_program, best_run, code_runs, function_body
from shared.extraction.choice import Choice, Extraction, choose
from shared.extraction.cpp_source import bare_cpp
from shared.extraction.fences import Block, find_blocks
from shared.extraction.languages import Language, language_of
from shared.extraction.python_source import MAX_PARSED_CHARACTERS, Source, visible
from shared.extraction.turns import answers, before_next_question
from shared.statuses import ExtractionReason

_ANSWER_TAG = re.compile(r"^[ \t]*\**<(answer|solution|final_answer)>", re.I | re.MULTILINE)
_BEGINS_CPP = ("#", "using ", "int ", "//", "/*", "typedef ", "template")


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
    2. Choose one of the fenced blocks (``shared.extraction.fences``, ``shared.extraction.choice``)
       with what it needs of others (``shared.extraction.combination``). A fenced block is a whole
       program. Code before a lone fence, which closes a block that the prompt opened, is a block.
    3. Without a fence, Python is the whole text if that is a program; a text that continues a
       function (``body_only``, truncated where the body ends); else the lines within the prose that
       are Python. In other languages it is the text from the first line of a program to the last.
    4. If no block can be the answer, blocks with another label and the text outside of blocks are
       tried, and count only if they define what the tests call (or anything, or read input).

    Code is returned unchanged, unless it is no program and becomes one without its common
    indentation, invisible characters and HTML's entities. Mistakes are never mended. Python texts
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
    best: Choice | None = None
    parts = answers(text, search.language)
    for offset, part in parts:
        found = search.in_answer(part)
        if found and (found.sure or best is None):
            best = _shifted(found, offset)
        if found and found.sure:
            break
    if best is None or not best.extraction.code.strip():
        prose = bool(parts) and not any("```" in part or "~~~" in part for _, part in parts)
        reason = ExtractionReason.PROSE_ONLY if prose else ExtractionReason.NO_CODE_BLOCK
        return Extraction("", reason)
    return replace(best.extraction, start=_offset_in_completion(best.extraction, completion))


@dataclass(frozen=True, slots=True)
class _Search:
    """One search for an answer; every method returns None if there is no code."""

    language: Language
    names: frozenset[str]

    def in_answer(self, text: str) -> Choice | None:
        """Search the text before a question that the model asks itself, then the whole text."""
        before = before_next_question(text)
        if before is not None:
            found = self.in_tags(before)
            if found and found.sure and found.extraction.reason != ExtractionReason.UNCLOSED_FENCE:
                return found
        return self.in_tags(text)

    def in_tags(self, text: str) -> Choice | None:
        """Search the last ``<answer>``, then the whole text."""
        openers = list(_ANSWER_TAG.finditer(text))
        if openers:
            opener = openers[-1]
            closer = text.find(f"</{opener[1]}>", opener.end())
            inner = text[opener.end() : len(text) if closer < 0 else closer]
            found = self.in_text(inner)
            if found and found.sure:
                return _shifted(found, opener.end())
        return self.in_text(text)

    def in_text(self, text: str) -> Choice | None:
        blocks = find_blocks(text, self.language)
        if not blocks:
            return self._whole(text) or self._in_prose(text)
        head = text[: blocks[0].opening].rstrip("\n")
        if not blocks[0].label and (begun := self._begun_by_prompt(head)):
            fence = f"```{min(self.language.labels)}\n"
            # A body needs the prompt's function, unless a block has a function of its own.
            is_body = begun.extraction.reason is ExtractionReason.BODY_ONLY
            more = find_blocks(fence + text, self.language)[1 if is_body else 0 :]
            found = self._choose(fence + text, more)
            if found is None or found.extraction.code == begun.extraction.code:
                return begun
            return (
                begun
                if is_body and not (self.names and found.sure)
                else _shifted(found, -len(fence))
            )
        found = self._choose(text, blocks)
        if found and found.sure:
            return found
        return self._elsewhere(text, blocks, found) or found

    def _choose(self, text: str, blocks: Sequence[Block]) -> Choice | None:
        return choose(text, blocks, self.language, self.names)

    def _begun_by_prompt(self, head: str) -> Choice | None:
        """The code before the first fence, if that closes a block which the prompt opened."""
        head_of_code = head.lstrip()
        programs = self.language.programs
        if self.language.is_cpp and not head_of_code.startswith(_BEGINS_CPP):
            return None
        if not head_of_code or (programs and not programs.begins.match(head_of_code)):
            return None
        return self._whole(head)

    def _whole(self, text: str) -> Choice | None:
        """A text that is a program or a function's body, apart from blank lines around it."""
        start = len(text) - len(text.lstrip("\n"))
        text = text.strip("\n")
        first, _, rest = text.partition("\n")
        if self.language.owns(first.strip().lower()):  # as behind a fence
            start, text = start + len(first) + 1, rest
        programs = self.language.programs
        if self.language.is_cpp or programs:
            if code := programs.bare(text) if programs else bare_cpp(text):
                place = start + text.find(code)
                return Choice(Extraction(code, ExtractionReason.BARE_CODE, place), True)
        elif self.language.is_python and len(text) <= MAX_PARSED_CHARACTERS:
            for version in dict.fromkeys((text, visible(text))):
                if program := bare_program(version):
                    found = Extraction(program, ExtractionReason.BARE_CODE, start)
                    return Choice(found, self._is_answer(program))
                if body := function_body(version):
                    return Choice(Extraction(body, ExtractionReason.BODY_ONLY, start), True)
        return None

    def _is_answer(self, code: str) -> bool:
        """Whether code defines what the tests call, if that is known; else anything, or reads."""
        if not self.language.is_python:
            return not self.language.is_cpp or bool(bare_cpp(code))
        source = Source(code)
        if self.names:
            return bool(self.names & {*source.definitions, *source.bound})
        return source.has_substance

    def _in_prose(self, text: str) -> Choice | None:
        if self.language.is_cpp or self.language.programs:
            return self._whole(text)
        if not self.language.is_python or len(text) > MAX_PARSED_CHARACTERS:
            return None
        text = visible(text)
        runs = code_runs(text)
        code = best_run(runs, self.names)
        if code is None:
            return None
        start = text.rfind(code)
        found = Extraction(code, ExtractionReason.PROSE_HEURISTIC, start if start >= 0 else None)
        # What the lines need of other runs.
        others = [Block("", run, True, 0, 0, 0) for run in runs if run != code]
        chosen = self._choose("", [*others, Block("python", code, True, 0, 0, 0)])
        if chosen and chosen.extraction.reason is ExtractionReason.COMBINED:
            found = chosen.extraction
        return Choice(found, self._is_answer(code))

    def _elsewhere(self, text: str, blocks: Sequence[Block], found: Choice | None) -> Choice | None:
        """Look for the answer where no block can be it: behind other labels, outside of blocks."""
        others = [replace(b, label="") for b in blocks if not self.language.owns(b.label)]
        pieces, position = [], 0
        for block in blocks:
            blank = "\n" * (block.end - max(position, block.opening))
            pieces += [text[position : block.opening], blank]
            position = block.end
        outside = "".join([*pieces, text[position:]])
        for other in (
            self._choose(text, others) if self.names or not found else None,
            self._in_prose(outside),
        ):
            if other and other.sure and self._is_answer(other.extraction.code):
                return other
        return None


def _shifted(found: Choice, offset: int) -> Choice:
    start = found.extraction.start
    moved = None if start is None else start + offset
    return replace(found, extraction=replace(found.extraction, start=moved))


def extract_verl(completion: str) -> Extraction:
    """Extract exactly as verl 0.9.1 does before it runs test cases.

    The code is the text from the last "```python" up to the next fence; else the text between the
    first two fences, without a first line that has only letters; without any fence there is no
    code. Fences may be anywhere in a line. Source:
    ``verl/utils/reward_score/sandbox_fusion/__init__.py``, ``compute_score``.
    """
    if "```python" in completion:
        start = completion.rindex("```python") + len("```python")
        code, fence, _ = completion[start:].partition("```")
        reason = ExtractionReason.FENCED if fence else ExtractionReason.UNCLOSED_FENCE
        return Extraction(code, reason, start)
    if "```" not in completion:
        empty = not completion.strip()
        return Extraction("", ExtractionReason.EMPTY if empty else ExtractionReason.NO_CODE_BLOCK)
    start = completion.index("```") + len("```")
    code, fence, _ = completion[start:].partition("```")
    first_line, newline, rest = code.partition("\n")
    if newline and first_line.strip().isalpha():
        start, code = start + len(first_line) + 1, rest
    reason = ExtractionReason.UNLABELLED if fence else ExtractionReason.UNCLOSED_FENCE
    return Extraction(code, reason, start)


def _offset_in_completion(found: Extraction, completion: str) -> int | None:
    """Find the code in the original text; None if it differs there, for example in line ends."""
    at = found.start
    if at is None or not found.code:
        return None
    left = at
    for number, line_end in enumerate(re.finditer("\r\n", completion)):
        if line_end.start() - number >= left:
            break
        at += 1
    return at if completion.startswith(found.code, at) else None
