"""The canonical form of a prompt, so that the same text hashes the same wherever it came from."""

import unicodedata

# Goes up whenever ``canonicalize`` changes: hashes of two versions cannot be compared.
CANONICAL_VERSION = "1"


def canonicalize(prompt: str) -> str:
    """Undo what editors, platforms and exports change without changing the text.

    Line ends become ``\\n``, characters Unicode NFC; blanks at the end of a line and blank lines
    at either end go. Indentation and blanks within a line stay, for they mean something in code.
    Idempotent.
    """
    unix = prompt.replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip() for line in unicodedata.normalize("NFC", unix).split("\n")]
    return "\n".join(lines).strip("\n")
