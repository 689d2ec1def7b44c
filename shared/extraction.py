"""Finding the program in a completion."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shared.bare_text import bare_program, dedent_program, function_body, python_lines
from shared.fences import Block, find_blocks
from shared.python_source import MAX_PARSED_CHARACTERS, Substance


class Reason(StrEnum):
    """Where the code was found, or why there is none."""

    FENCED = "fenced"
    UNLABELLED = "unlabelled"
    UNCLOSED_FENCE = "unclosed_fence"
    BARE_CODE = "bare_code"
    BODY_ONLY = "body_only"
    PROSE_HEURISTIC = "prose_heuristic"
    NO_CODE_BLOCK = "no_code_block"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Extraction:
    code: str
    reason: Reason

    @property
    def found(self) -> bool:
        return self.reason not in (Reason.NO_CODE_BLOCK, Reason.EMPTY)


def extract_verl(completion: str) -> Extraction:
    """Extract as verl 0.9.1 does before it runs test cases, to the letter.

    The last "```python" up to the next fence; else what is between the first two fences, less a
    first line of letters only; without any fence there is no code. No fence has to stand on a line
    of its own. Source: ``verl/utils/reward_score/sandbox_fusion/__init__.py``, ``compute_score``.
    """
    if "```python" in completion:
        code, fence, _ = completion.rpartition("```python")[2].partition("```")
        return Extraction(code, Reason.FENCED if fence else Reason.UNCLOSED_FENCE)
    if "```" not in completion:
        return Extraction("", Reason.NO_CODE_BLOCK if completion.strip() else Reason.EMPTY)
    code, fence, _ = completion.partition("```")[2].partition("```")
    first_line, newline, rest = code.partition("\n")
    if newline and first_line.strip().isalpha():
        code = rest
    return Extraction(code, Reason.UNLABELLED if fence else Reason.UNCLOSED_FENCE)


def extract_python(completion: str, *, entry_point: str | None = None) -> Extraction:
    """Extract the Python answer of a completion; never raises and never runs anything.

    1. Reasoning goes: what ``<think>`` at the start of a line and ``</think>`` enclose, what
       follows a ``<think>`` that is never closed, what precedes a ``</think>`` never opened.
    2. Fenced blocks (``shared.fences``) labelled Python (python, py, python3 … in any case, with
       attributes or without); where there is none, unlabelled ones; then a block that was never
       closed. Blocks in other languages and empty ones do not count.
    3. Of several such blocks the last of those with the most substance: it defines
       ``entry_point``, or any function or class or reads standard input, or does anything,
       or parses, or not even that. An example of use after the answer is passed over.
    4. Without any fence: the whole text if it is Python; an indented text that continues a
       function (``body_only``, indentation kept, cut where the body ends); else the lines within
       the prose that are Python and define, import or assign something. The same for a program
       or body before a lone fence, which closes a block that the prompt had opened.

    A fenced block is a program of its own, never the continuation of the prompt. Texts over 200 KB
    are not parsed: step 3 takes them as broken and step 4 finds nothing in them.

    Args:
        completion: The model's whole text.
        entry_point: Name of the function that the tests call, where it is known.
    """
    if not completion.strip():
        return Extraction("", Reason.EMPTY)
    text = _without_reasoning(completion.replace("\r\n", "\n").replace("\r", "\n"))
    blocks = find_blocks(text)
    if not blocks:
        found = _from_bare_text(text.strip("\n"), entry_point)
    else:
        found = _before_stray_fence(text, blocks, entry_point) or _from_blocks(
            [block for block in blocks if block.code.strip()], entry_point
        )
    return found or Extraction("", Reason.NO_CODE_BLOCK)


def _before_stray_fence(
    text: str, blocks: Sequence[Block], entry_point: str | None
) -> Extraction | None:
    """The program before a lone fence, which closes a block that the prompt had opened."""
    if len(blocks) > 1 or blocks[0].closed or blocks[0].label:
        return None
    head = text.partition("\n```")[0].strip("\n")
    return _from_bare_text(head, entry_point, prose=False)


_THINK_OPENS = re.compile(r"^[ \t]*<think>", re.IGNORECASE | re.MULTILINE)
_THINK_CLOSES = re.compile(r"</think>", re.IGNORECASE)
_THINK_CLOSES_LINE = re.compile(r"^[ \t]*</think>|</think>[ \t]*$", re.IGNORECASE | re.MULTILINE)


def _without_reasoning(text: str) -> str:
    kept, position = [], 0
    while opener := _THINK_OPENS.search(text, position):
        kept.append(text[position : opener.start()])
        closer = _THINK_CLOSES.search(text, opener.end())
        position = closer.end() if closer else len(text)
    answer = "".join([*kept, text[position:]])
    # Chat templates that write the opening tag themselves leave only the closing one.
    strays = list(_THINK_CLOSES_LINE.finditer(answer))
    return answer[strays[-1].end() :] if strays else answer


def _from_blocks(blocks: Sequence[Block], entry_point: str | None) -> Extraction | None:
    def pick(
        wanted: Callable[[Block], bool], reason: Reason, least: Substance
    ) -> Extraction | None:
        chosen = _most_substantial([b.code for b in blocks if wanted(b)], entry_point, least)
        return Extraction(chosen, reason) if chosen else None

    def unlabelled(block: Block) -> bool:
        return block.closed and not block.label

    return (
        pick(lambda b: b.closed and b.is_python, Reason.FENCED, Substance.BROKEN)
        or pick(unlabelled, Reason.UNLABELLED, Substance.STATEMENTS)
        or _unclosed(blocks)
        or pick(unlabelled, Reason.UNLABELLED, Substance.BROKEN)
    )


def _most_substantial(
    codes: Sequence[str], entry_point: str | None, least: Substance
) -> str | None:
    best: str | None = None
    most = least
    for code in codes:
        text, rank = dedent_program(code, entry_point)
        if rank >= most:
            best, most = text, rank
    return best


def _unclosed(blocks: Sequence[Block]) -> Extraction | None:
    for block in reversed(blocks):
        if not block.closed and (block.is_python or not block.label):
            return Extraction(block.code.rstrip().removesuffix("```"), Reason.UNCLOSED_FENCE)
    return None


def _from_bare_text(text: str, entry_point: str | None, *, prose: bool = True) -> Extraction | None:
    if len(text) > MAX_PARSED_CHARACTERS:
        return None
    if program := bare_program(text, entry_point):
        return Extraction(program, Reason.BARE_CODE)
    if body := function_body(text):
        return Extraction(body, Reason.BODY_ONLY)
    if prose and (lines := python_lines(text, entry_point)):
        return Extraction(lines, Reason.PROSE_HEURISTIC)
    return None
