"""Code in markup besides Markdown: HTML and other tags, LaTeX, JSON."""

import ast
import html
import json
import re
from collections.abc import Iterator

from shared.extraction.fences import Block
from shared.extraction.languages import Language
from shared.extraction.python_source import MAX_PARSED_CHARACTERS, parse
from shared.statuses import ExtractionReason

_OPENS = re.compile(
    r"<(?P<tag>pre|code|python|python3|py|solution|answer|final_answer|cpp|program|source|java)"
    r"\b(?P<attributes>[^<>\n]{0,200})>"
    r"|\\begin\{(?P<environment>lstlisting|verbatim|minted|code|python|cpp)\}"
    r"(?P<options>(?:\[[^\]\n]{0,200}\])?(?:\{[^}\n]{0,40}\})?)"
    r"|\[(?P<bracket>PYTHON|CODE|SOLUTION|ANSWER|CPP|code|python|cpp)(?:=\w{1,20})?\]"
    r"|\\(?P<boxed>boxed)\{"
)
_LANGUAGE = re.compile(r"(?:language[-=]|lang=|lang-|\{|class=)[\"']?([A-Za-z0-9+#]+)")
_INNER_TAG = re.compile(r"\A\s*<(?:code[^<>\n]{0,200}>|!\[CDATA\[)|(?:</code>|\]\]>)\s*\Z")
_BRACE = re.compile(r"[{}]")
_WRITTEN_AS = re.compile(r"\A\s*\\(?:text|texttt|verb|mathtt)\{(.*)\}\s*\Z", re.DOTALL)
_CODE_KEYS = ("code", "solution", "answer", "program", "final", "python", "source", "completion")
_MOST_NODES = 10_000


def find_containers(text: str, language: Language) -> list[Block]:
    """Find code between tags or in LaTeX's environments, as blocks.

    These are ``<code>``, ``<pre>``, ``<answer>`` and the like (with HTML's entities), ``[PYTHON]``
    and the like up to the closing tag or the end, ``lstlisting``, ``minted`` and ``verbatim``, and
    ``\\boxed``.
    """
    return list(_scan(text, language))


def _scan(text: str, language: Language) -> Iterator[Block]:
    position = 0
    missing: set[str] = set()
    braces = _matching_braces(text)
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text
    while opener := _OPENS.search(text, position):
        end = _end(lowered, opener, missing, braces)
        position = opener.end()
        if end is None:
            continue
        code = text[opener.end() : end]
        position = end
        if opener["tag"]:
            code = html.unescape(_INNER_TAG.sub("", code))
        elif opener["boxed"] and (written := _WRITTEN_AS.match(code)):
            code = written[1]
        label = _label(opener, language)
        start = opener.end() + len(code) - len(code.lstrip("\n"))
        yield Block(label, code.strip("\n"), True, 0, start, reason=ExtractionReason.MARKUP)


def _end(
    lowered: str, opener: re.Match[str], missing: set[str], braces: dict[int, int]
) -> int | None:
    if opener["boxed"]:
        return braces.get(opener.end())
    if opener["tag"]:
        closing = f"</{opener['tag'].lower()}>"
    elif opener["environment"]:
        closing = f"\\end{{{opener['environment'].lower()}}}"
    else:
        closing = f"[/{opener['bracket'].lower()}]"
    end = -1 if closing in missing else lowered.find(closing, opener.end())
    if end < 0:
        missing.add(closing)
        return len(lowered) if opener["bracket"] else None
    return end


def _matching_braces(text: str) -> dict[int, int]:
    """Position of the closing brace by the position behind the opening one."""
    pairs, opened = {}, []
    for brace in _BRACE.finditer(text) if "\\boxed{" in text else ():
        if brace[0] == "{":
            opened.append(brace.end())
        elif opened:
            pairs[opened.pop()] = brace.start()
    return pairs


def _label(opener: re.Match[str], language: Language) -> str:
    """The wanted language's label if the opening tag names it, another word if it names another."""
    named = (opener["tag"] or opener["environment"] or opener["bracket"] or "").lower()
    if language.owns(named):
        return named
    found = _LANGUAGE.search(opener["attributes"] or opener["options"] or "")
    return found[1].lower() if found else ""


def json_texts(text: str) -> Iterator[str]:
    """The texts in a JSON document (or Python literal), those under a name such as "code" first.

    The document is the whole text, or what is between its first and last brace.
    """
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start or end - start > MAX_PARSED_CHARACTERS:
        return
    document = _load(text[start : end + 1])
    found = [(name, value) for name, value in _strings(document) if len(value) > 5]
    preferred = [v for name, v in found if any(key in name.lower() for key in _CODE_KEYS)]
    yield from reversed(preferred)
    yield from (value for _, value in reversed(found))


def _load(text: str) -> object:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        tree = parse(text)
    value = tree.body[0] if tree and tree.body else None
    try:
        return ast.literal_eval(value.value) if isinstance(value, ast.Expr) else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _strings(document: object) -> Iterator[tuple[str, str]]:
    pending: list[tuple[str, object]] = [("", document)]
    for _ in range(_MOST_NODES):
        if not pending:
            return
        name, value = pending.pop()
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict):
            pending += [(str(key), item) for key, item in reversed(value.items())]
        elif isinstance(value, list | tuple):
            pending += [(name, item) for item in reversed(value)]
