"""Code extraction: find the program in a completion.

Pure functions that never raise and never run code.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from shared.extraction.choice import Extraction, choose
from shared.extraction.fences import Block, find_blocks
from shared.extraction.languages import Language, language_of, looks_like_cpp
from shared.extraction.python_source import (
    MAX_PARSED_CHARACTERS,
    bare_program,
    function_body,
    python_lines,
)
from shared.statuses import ExtractionPolicy, ExtractionReason

_OPENS = re.compile(r"^[ \t]*<think>", re.IGNORECASE | re.MULTILINE)
_CLOSES = re.compile(r"</think>", re.IGNORECASE)
_CLOSES_LINE = re.compile(r"^[ \t]*</think>|</think>[ \t]*$", re.IGNORECASE | re.MULTILINE)

_Span = tuple[int, int]


def extract(
    completion: str,
    *,
    language: str = "python",
    entry_point: str | None = None,
    policy: ExtractionPolicy = ExtractionPolicy.LAST,
) -> Extraction:
    """Extract the answer of a completion.

    1. Normalize line ends to "\\n". Remove reasoning: the text between ``<think>`` at the start of
       a line and ``</think>``, the text after an unclosed ``<think>``, and the text before an
       unopened ``</think>``.
    2. Find fenced blocks (``shared.extraction.fences``). Blocks labelled with the language, by its
       name or an alias, in any case, with or without version and attributes, come first; blocks
       without a label follow. Blocks in other languages and empty blocks are ignored.
    3. Choose one of several blocks by ``policy`` (``shared.extraction.choice``). The default is the
       last complete block that can be the answer: it defines the entry point, if that is known and
       any block does; otherwise it is not merely output, a fragment, or an example or test of names
       from an earlier block. An unclosed block, where the completion was truncated, is chosen if no
       complete block can be the answer (``unclosed_fence``).
    4. Without any fence, Python is the whole text if that is a program; an indented text that
       continues a function (``body_only``, indentation kept, truncated where the body ends); else
       the lines within the prose that are Python and define, import or assign something. C++ is the
       whole text if a line includes a header or begins ``main``. Other languages have no code.
    5. A program or body before a lone fence, which closes a block that the prompt opened, is found
       in the same way, but without a search in prose.

    Code is returned unchanged, including a main guard and example calls. A fenced block is a
    complete program, never the continuation of the prompt. Python texts over 200 KB are not parsed:
    step 3 uses regular expressions for them, and step 4 finds nothing.

    Args:
        completion: The model's whole text; any string.
        language: SandboxFusion's name of the wanted language.
        entry_point: Name of the function that the tests call, if known. Used for Python only.
        policy: Policy for choosing one of several blocks.

    Returns:
        The code, with its offset in the completion if it is one contiguous part of it.
    """
    if not completion.strip():
        return Extraction("", ExtractionReason.EMPTY)
    unix = completion.replace("\r\n", "\n").replace("\r", "\n")
    spans = _spans_without_reasoning(unix)
    text = _join(unix, spans)
    wanted = language_of(language)
    blocks = find_blocks(text, wanted)
    if not blocks:
        found = _from_bare_text(text, wanted, entry_point)
    else:
        found = _before_stray_fence(text, blocks, wanted, entry_point)
        found = found or choose(blocks, wanted, entry_point, policy)
    if found is None:
        return Extraction("", ExtractionReason.NO_CODE_BLOCK)
    return replace(found, start=_offset_in_completion(found, completion, spans))


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


def _before_stray_fence(
    text: str, blocks: Sequence[Block], language: Language, entry_point: str | None
) -> Extraction | None:
    """Extract the program before a lone fence, which closes a block that the prompt opened."""
    if len(blocks) > 1 or blocks[0].closed or blocks[0].label:
        return None
    head = "\n".join(text.split("\n")[: blocks[0].line])
    return _from_bare_text(head, language, entry_point, prose=False)


def _from_bare_text(
    text: str, language: Language, entry_point: str | None, *, prose: bool = True
) -> Extraction | None:
    start = len(text) - len(text.lstrip("\n"))
    text = text.strip("\n")
    if language.is_cpp:
        return Extraction(text, ExtractionReason.BARE_CODE, start) if looks_like_cpp(text) else None
    if not language.is_python or len(text) > MAX_PARSED_CHARACTERS:
        return None
    if program := bare_program(text):
        return Extraction(program, ExtractionReason.BARE_CODE, start)
    if body := function_body(text):
        return Extraction(body, ExtractionReason.BODY_ONLY, start)
    if prose and (lines := python_lines(text, entry_point)):
        return Extraction(lines, ExtractionReason.PROSE_HEURISTIC, start + text.rindex(lines))
    return None


# Reasoning


def _spans_without_reasoning(text: str) -> list[_Span]:
    """Find the spans of the text without reasoning.

    Removed are the text between ``<think>`` at the start of a line and the next ``</think>``, the
    text after an unclosed ``<think>``, and the text before an unopened ``</think>`` at the start or
    end of a line.
    """
    spans, position = [], 0
    while opener := _OPENS.search(text, position):
        spans.append((position, opener.start()))
        closer = _CLOSES.search(text, opener.end())
        position = closer.end() if closer else len(text)
    spans.append((position, len(text)))
    # Chat templates that write the opening tag themselves leave only the closing one.
    strays = _CLOSES_LINE.finditer(_join(text, spans))
    return _drop(spans, max((stray.end() for stray in strays), default=0))


def _join(text: str, spans: Sequence[_Span]) -> str:
    return "".join(text[start:end] for start, end in spans)


def _drop(spans: Sequence[_Span], count: int) -> list[_Span]:
    """Remove the first ``count`` characters."""
    kept = []
    for start, end in spans:
        dropped = min(count, end - start)
        count -= dropped
        kept.append((start + dropped, end))
    return kept


def _offset_in_completion(found: Extraction, completion: str, spans: Sequence[_Span]) -> int | None:
    """Find the code in the original text; None if it differs there, for example in line ends."""
    left = found.start
    if left is None or not found.code:
        return None
    for start, end in spans:
        if left < end - start:
            break
        left -= end - start
    at = start + left
    for number, line_end in enumerate(re.finditer("\r\n", completion)):
        if line_end.start() - number >= start + left:
            break
        at += 1
    return at if completion.startswith(found.code, at) else None
