"""The canonical form of a prompt, so that the same text hashes the same wherever it came from."""

import re
import unicodedata

# Goes up whenever ``canonicalize`` changes: hashes of two versions cannot be compared.
CANONICAL_VERSION = "2"

_FENCES = ("```", "~~~")
_INDENTED = re.compile(r"(?: {4}| {0,3}\t)")
_INNER_BLANKS = re.compile(r"(?<=\S)[^\S\n]+(?=\S)")


def canonicalize(prompt: str) -> str:
    """Undo what editors, platforms and exports change without changing the text.

    Line ends become ``\\n``, characters Unicode NFC; byte order marks, blanks at the end of a line
    and blank lines at either end go. Outside code a run of blanks within a line becomes one, and a
    run of blank lines, too. Code is what stands between fences (of back-ticks or tildes) or is
    indented by a tab or four blanks, as in Markdown: there blanks mean something. Idempotent.
    """
    unix = prompt.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "")
    lines: list[str] = []
    fenced = False
    for line in unicodedata.normalize("NFC", unix).split("\n"):
        line = line.rstrip()
        if line.lstrip().startswith(_FENCES):
            fenced = not fenced
        elif not fenced and not _INDENTED.match(line):
            if not line and lines and not lines[-1]:
                continue
            line = _INNER_BLANKS.sub(" ", line)
        lines.append(line)
    return "\n".join(lines).strip("\n")
