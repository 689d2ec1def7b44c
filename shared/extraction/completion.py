"""Code extraction: find the program in a completion.

Pure functions that never raise and never run code.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from shared.extraction.answer_text import answer_text, before_next_turn
from shared.extraction.choice import Choice, Extraction, choose
from shared.extraction.cpp_source import bare_cpp
from shared.extraction.fences import Block, find_blocks
from shared.extraction.languages import Language, language_of
from shared.extraction.markup import find_containers, json_texts
from shared.extraction.prose import bare_program, code_runs, function_body, python_lines
from shared.extraction.python_source import MAX_PARSED_CHARACTERS, Substance, parse, substance
from shared.extraction.repairs import without_invisible
from shared.extraction.snippet import Snippet
from shared.statuses import ExtractionPolicy, ExtractionReason

_ANSWER_TAG = re.compile(r"^[ \t]*\**<(answer|solution|final_answer)>", re.I | re.MULTILINE)
_MOST_TEXTS = 20


def extract(
    completion: str,
    *,
    language: str = "python",
    entry_point: str | Collection[str] | None = None,
    policy: ExtractionPolicy = ExtractionPolicy.LAST,
) -> Extraction:
    """Extract the answer of a completion.

    1. Keep the answer (``shared.extraction.answer_text``): line ends become "\\n"; reasoning
       (``<think>`` and tags of the same meaning) and tokens of chat templates are removed, and with
       them everything behind the end of the turn. If the text before a further question that the
       model asks itself ("### Instruction:", "Human:") has an answer, or the last
       ``<answer>`` tag, only that part is searched.
    2. Find fenced blocks (``shared.extraction.fences``). Blocks labelled with the language, by its
       name or an alias, in any case, with or without version and attributes, come first; blocks
       without a label follow. Blocks in other languages and empty blocks are ignored. Code before a
       lone fence, which closes a block that the prompt opened, is a block too.
    3. Choose one of several blocks by ``policy`` (``shared.extraction.choice``). The default is the
       last complete block that can be the answer: it defines a function that the tests call, if
       these are known and any block does; otherwise it reads input and prints, or at least is not
       merely output, a fragment, or an example or test of names from an earlier block. An unclosed
       block, where the completion was truncated, is chosen if no complete block can be the answer
       (``unclosed_fence``).
    4. What the chosen block needs and does not define is taken from other blocks that are neither
       examples nor tests (``shared.extraction.combination``; reason ``combined``).
    5. Without a fence, Python is the whole text if that is a program; a text that continues a
       function (``body_only``, indentation kept, truncated where the body ends); else code in
       tags, LaTeX or JSON (``markup``); else the lines within the prose that are Python and define,
       import or assign something, with other such lines that they need. C++ is the text from the
       first line of a program to the last. Other languages have no code.
    6. If no block can be the answer, the ways of step 5 and blocks with another language's label
       are tried; they count only if they define what the tests call (or anything, or read input).
       A fenced block is a complete program, never the continuation of the prompt.

    Code is returned unchanged, including a main guard and example calls, unless it is no program
    and becomes one by a repair of how it was written down (``shared.extraction.repairs``): HTML's
    entities, invisible characters, line numbers, prompts, marks of a diff, "\\n" as two characters.
    Mistakes of the program itself are never mended. Python texts over 200 KB are not parsed: step 3
    uses regular expressions for them, and step 5 finds nothing.

    Args:
        completion: The model's whole text; any string.
        language: SandboxFusion's name of the wanted language.
        entry_point: Name of the function that the tests call, or names of all of them, if known.
            Used for Python only.
        policy: Policy for choosing one of several blocks.

    Returns:
        The code, with its offset in the completion if it is one contiguous part of it.
    """
    if not completion.strip():
        return Extraction("", ExtractionReason.EMPTY)
    unix = completion.replace("\r\n", "\n").replace("\r", "\n")
    names = [entry_point] if isinstance(entry_point, str) else entry_point or ()
    search = _Search(language_of(language), frozenset(filter(None, names)), policy)
    found = search.in_turns(answer_text(unix))
    if found is None:
        return Extraction("", ExtractionReason.NO_CODE_BLOCK)
    return replace(found.extraction, start=_offset_in_completion(found.extraction, completion))


@dataclass(frozen=True, slots=True)
class _Search:
    """One search for an answer; every method returns None if there is no code."""

    language: Language
    names: frozenset[str]
    policy: ExtractionPolicy

    def in_turns(self, text: str) -> Choice | None:
        """Search the text before a question that the model asks itself, then the whole text."""
        before = before_next_turn(text)
        if before is not None:
            found = self.in_answer(before)
            if found and found.sure and found.extraction.reason != ExtractionReason.UNCLOSED_FENCE:
                return found
        return self.in_answer(text)

    def in_answer(self, text: str) -> Choice | None:
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
            return self._in_bare_text(text)
        found = self._behind_open_fence(text, blocks) or self._choose(blocks)
        if found and found.sure:
            return found
        return self._elsewhere(text, blocks, found) or found

    def _choose(self, blocks: Sequence[Block]) -> Choice | None:
        return choose(blocks, self.language, self.names, self.policy)

    def _behind_open_fence(self, text: str, blocks: Sequence[Block]) -> Choice | None:
        """Extract from a text that begins inside a block which the prompt opened."""
        first = blocks[0]
        if first.label:
            return None
        lines = text.split("\n")
        head, rest = "\n".join(lines[: first.line]), "\n".join(lines[first.line + 1 :])
        if not head.strip() or (self.language.is_cpp and not _begins_with_code(head)):
            return None
        found = self._whole(head)
        if found is None:
            return None
        further = [
            replace(b, start=b.start + len(text) - len(rest), line=b.line + first.line + 1)
            for b in find_blocks(rest, self.language)
        ]
        if found.extraction.reason is ExtractionReason.BODY_ONLY:
            chosen = self._choose(further) if self.names else None
            lone = len(blocks) == 1 and not first.closed
            return None if chosen and chosen.sure else found if lone or self.names else None
        start = found.extraction.start or 0
        label = min(self.language.labels)
        own = Block(label, found.extraction.code, True, 0, start, "", found.extraction.reason)
        return self._choose([own, *further])

    def _in_bare_text(self, text: str) -> Choice | None:
        if self.language.is_cpp:  # its first and last lines are also found within markup
            return self._in_markup(text) or self._whole(text)
        return self._whole(text) or self._in_markup(text) or self._in_prose(text)

    def _whole(self, text: str) -> Choice | None:
        """A text that is a program or a function's body, apart from blank lines around it."""
        start = len(text) - len(text.lstrip("\n"))
        text = text.strip("\n")
        first, _, rest = text.partition("\n")
        if self.language.owns(first.strip().lower()):  # as behind a fence
            start, text = start + len(first) + 1, rest
        if self.language.is_cpp:
            code = bare_cpp(text)
            place = start + text.find(code) if code else 0
            return (
                Choice(Extraction(code, ExtractionReason.BARE_CODE, place), True) if code else None
            )
        if not self.language.is_python or len(text) > MAX_PARSED_CHARACTERS:
            return None
        for version in dict.fromkeys((text, without_invisible(text))):
            if program := bare_program(version):
                found = Extraction(program, ExtractionReason.BARE_CODE, start)
                return Choice(found, self._is_answer(program))
            if body := function_body(version):
                return Choice(Extraction(body, ExtractionReason.BODY_ONLY, start), True)
        return None

    def _is_answer(self, code: str) -> bool:
        rank = substance(parse(code), self.names)
        return rank >= (Substance.ENTRY_POINT if self.names else Substance.ANSWER)

    def _in_markup(self, text: str) -> Choice | None:
        found = self._choose(find_containers(text, self.language))
        if found and found.sure and self._counts(found.extraction.code):
            return found
        return self._in_json(text)

    def _in_json(self, text: str) -> Choice | None:
        for value in islice(json_texts(text), _MOST_TEXTS):
            inner = None if value.startswith("{") else self.in_text(value)
            if inner and inner.sure and self._counts(inner.extraction.code):
                reason = inner.extraction.reason
                if reason is not ExtractionReason.BODY_ONLY:
                    reason = ExtractionReason.MARKUP
                return Choice(Extraction(inner.extraction.code, reason), sure=True)
        return None

    def _counts(self, code: str) -> bool:
        return self._is_answer(code) if self.language.is_python else bool(bare_cpp(code))

    def _in_prose(self, text: str) -> Choice | None:
        if not self.language.is_python or len(text) > MAX_PARSED_CHARACTERS:
            return None
        text = without_invisible(text) if not text.isascii() else text
        lines = python_lines(text, self.names)
        if lines is None:
            session = Snippet.read(text.strip("\n"))
            if session.session and self._is_answer(session.code):
                return Choice(Extraction(session.code, ExtractionReason.PROSE_HEURISTIC), True)
            return None
        start = text.rfind(lines)
        found = Extraction(lines, ExtractionReason.PROSE_HEURISTIC, start if start >= 0 else None)
        return Choice(self._with_other_runs(text, found), self._is_answer(lines))

    def _with_other_runs(self, text: str, found: Extraction) -> Extraction:
        """Add what the lines need of other runs of lines."""
        runs = list(dict.fromkeys(code_runs(text)))
        blocks = [Block("", run, run == found.code or bool(parse(run)), 0, 0) for run in runs]
        only = [b for b in blocks if b.code != found.code]
        own = Block("python", found.code, True, 0, 0)
        chosen = choose([*only, own], self.language, self.names, ExtractionPolicy.LAST)
        if chosen and chosen.extraction.reason is ExtractionReason.COMBINED:
            return chosen.extraction
        return found

    def _elsewhere(self, text: str, blocks: Sequence[Block], found: Choice | None) -> Choice | None:
        """Look for the answer where no block can be it: behind other labels, outside of blocks."""
        outside = _without(text, blocks)
        for other in (
            self._behind_other_labels(blocks) if self.names or not found else None,
            self._in_markup(outside),
            self._in_prose(outside),
        ):
            if other and other.sure and self._counts(other.extraction.code):
                return other
        return None

    def _behind_other_labels(self, blocks: Sequence[Block]) -> Choice | None:
        others = [replace(b, label="") for b in blocks if not self.language.owns(b.label)]
        found = self._choose(others)
        if found and found.sure and self._counts(found.extraction.code):
            return found
        documents = (self._in_json(b.code) for b in others if b.code.lstrip()[:1] == "{")
        return next(filter(None, documents), None)


def _without(text: str, blocks: Sequence[Block]) -> str:
    """The text with fenced blocks blanked."""
    lines = text.split("\n")
    for block in blocks:
        for number in range(block.line, min(len(lines), block.line + block.code.count("\n") + 3)):
            lines[number] = " " * len(lines[number])
    return "\n".join(lines)


def _begins_with_code(text: str) -> bool:
    return text.lstrip().startswith(("#", "using ", "int ", "//", "/*", "typedef ", "template"))


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
