"""Shortening and compression of texts; exceptions in one line; lists of URLs; cases not run."""

import zlib

# Characters of a text of a case, and of the note on what is missing.
_SHOWN_CHARS, _NOTE_CHARS = 2000, 64


def shorten_middle(text: str, limit: int) -> str:
    """Keep ``limit`` characters of a longer text, its head and tail, and note how many are missing.

    The note is a separate line and does not count towards the limit.
    """
    if len(text) <= limit:
        return text
    note = f"\n… {len(text) - limit} characters left out …\n"
    head = (limit + 1) // 2
    return text[:head] + note + text[len(text) - (limit - head) :]


def shown(text: str) -> str:
    """Return the part of a case's text that a verdict has; the same if it was shortened before."""
    if len(text) <= _SHOWN_CHARS + _NOTE_CHARS:
        return text
    return shorten_middle(text, _SHOWN_CHARS)


def not_run_note(cases: int) -> str:
    """The end of a phrase on the cases that passed: how many were not run; empty if all were."""
    return f", {cases} not run" if cases else ""


def shorten_end(text: str, limit: int) -> str:
    """Cut a longer text to ``limit`` characters, the last of which is an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def plain_message(message: str) -> str:
    """A message of pydantic without the words that it puts before one of our own."""
    return message.removeprefix("Value error, ")


def one_line(error: BaseException) -> str:
    """The message of an exception in one line; its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def split_urls(text: str) -> list[str]:
    """Split comma-separated URLs; blanks and empty parts are dropped.

    A comma in a password does not separate.
    """
    urls: list[str] = []
    for part in text.split(","):
        if urls and "@" in part and "://" not in part and "://" in urls[-1]:
            urls[-1] += f",{part}"
        else:
            urls.append(part)
    return [url.strip() for url in urls if url.strip()]


def pack(document: str) -> bytes:
    """Compress a completion or problem for the ledger."""
    return zlib.compress(document.encode(), 1)


def unpack(packed: bytes) -> bytes:
    """Decompress a stored completion or problem.

    Raises:
        ValueError: It is not zlib.
    """
    try:
        return zlib.decompress(packed)
    except zlib.error as error:
        raise ValueError(f"a record in Redis is not compressed text: {error}") from None
