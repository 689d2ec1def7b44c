"""Shortening of long texts, in the middle or at the end."""


def shorten_middle(text: str, limit: int) -> str:
    """Keep ``limit`` characters of a longer text, its head and tail, and note how many are missing.

    The note is a separate line and does not count towards the limit.
    """
    if len(text) <= limit:
        return text
    note = f"\n… {len(text) - limit} characters left out …\n"
    head = (limit + 1) // 2
    return text[:head] + note + text[len(text) - (limit - head) :]


def shorten_end(text: str, limit: int) -> str:
    """Cut a longer text to ``limit`` characters, the last of which is an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
