"""The program in a completion."""

from collections.abc import Sequence

from shared.extraction.bare_text import bare_program, function_body, python_lines
from shared.extraction.choice import choose
from shared.extraction.fences import Block, find_blocks
from shared.extraction.languages import Language, language_of, looks_like_cpp
from shared.extraction.python_source import MAX_PARSED_CHARACTERS
from shared.extraction.reasoning import without_reasoning
from shared.extraction.result import Extraction, ExtractionPolicy, Reason


def extract(
    completion: str,
    *,
    language: str = "python",
    entry_point: str | None = None,
    policy: ExtractionPolicy = ExtractionPolicy.LAST,
) -> Extraction:
    """Extract the answer of a completion.

    1. Line ends become "\\n". Reasoning goes: what ``<think>`` at the start of a line and
       ``</think>`` enclose, what follows a ``<think>`` that is never closed, what precedes a
       ``</think>`` never opened (``shared.extraction.reasoning``).
    2. Fenced blocks are found (``shared.extraction.fences``). Those labelled with the language
       count, by its name or an alias, in any case, with version or attributes or without;
       those without a label count after them. Blocks in other languages and empty ones do not.
    3. Of several blocks ``policy`` takes one (``shared.extraction.choice``). By default it is the
       last complete block that can be the answer: it defines the entry point, if that is known and
       any block does; else it is not merely output, a fragment, or an example or test of what an
       earlier block defines. A block that was never closed, because the completion was cut off, is
       taken where no complete one can be the answer (``unclosed_fence``).
    4. Python without any fence: the whole text if it is a program; an indented text that continues
       a function (``body_only``, indentation kept, cut where the body ends); else the lines within
       the prose that are Python and define, import or assign something. C++ without any fence: the
       whole text, if a line of it includes a header or begins ``main``. Other languages: nothing.
    5. The same for a program or body before a lone fence, which closes a block that the prompt had
       opened; but there is no search in prose.

    Code is given back as it is, main guard and example calls with it. A fenced block is a program
    of its own, never the continuation of the prompt. Python texts over 200 KB are not parsed: step
    3 goes by what their lines look like, and step 4 finds nothing in them.

    Args:
        completion: The model's whole text; any string.
        language: SandboxFusion's name of the wanted language.
        entry_point: Name of the function that the tests call, where it is known. Only Python
            answers are looked at for it.
        policy: Which of several blocks to take.
    """
    if not completion.strip():
        return Extraction("", Reason.EMPTY)
    text = without_reasoning(completion.replace("\r\n", "\n").replace("\r", "\n"))
    wanted = language_of(language)
    blocks = find_blocks(text, wanted)
    if not blocks:
        found = _from_bare_text(text.strip("\n"), wanted, entry_point)
    else:
        found = _before_stray_fence(text, blocks, wanted, entry_point)
        found = found or choose(blocks, wanted, entry_point, policy)
    return found or Extraction("", Reason.NO_CODE_BLOCK)


def _before_stray_fence(
    text: str, blocks: Sequence[Block], language: Language, entry_point: str | None
) -> Extraction | None:
    """The program before a lone fence, which closes a block that the prompt had opened."""
    if len(blocks) > 1 or blocks[0].closed or blocks[0].label:
        return None
    head = "\n".join(text.split("\n")[: blocks[0].line]).strip("\n")
    return _from_bare_text(head, language, entry_point, prose=False)


def _from_bare_text(
    text: str, language: Language, entry_point: str | None, *, prose: bool = True
) -> Extraction | None:
    if language.is_cpp:
        return Extraction(text, Reason.BARE_CODE) if looks_like_cpp(text) else None
    if not language.is_python or len(text) > MAX_PARSED_CHARACTERS:
        return None
    if program := bare_program(text):
        return Extraction(program, Reason.BARE_CODE)
    if body := function_body(text):
        return Extraction(body, Reason.BODY_ONLY)
    if prose and (lines := python_lines(text, entry_point)):
        return Extraction(lines, Reason.PROSE_HEURISTIC)
    return None
