"""Taking a model's reasoning out of its completion."""

import re

_OPENS = re.compile(r"^[ \t]*<think>", re.IGNORECASE | re.MULTILINE)
_CLOSES = re.compile(r"</think>", re.IGNORECASE)
_CLOSES_LINE = re.compile(r"^[ \t]*</think>|</think>[ \t]*$", re.IGNORECASE | re.MULTILINE)


def without_reasoning(text: str) -> str:
    """Remove what ``<think>`` at the start of a line and the next ``</think>`` enclose.

    What follows a ``<think>`` that is never closed goes as well, and so does what precedes a
    ``</think>`` at either end of a line that was never opened.
    """
    kept, position = [], 0
    while opener := _OPENS.search(text, position):
        kept.append(text[position : opener.start()])
        closer = _CLOSES.search(text, opener.end())
        position = closer.end() if closer else len(text)
    answer = "".join([*kept, text[position:]])
    # Chat templates that write the opening tag themselves leave only the closing one.
    end = 0
    for stray in _CLOSES_LINE.finditer(answer):
        end = stray.end()
    return answer[end:]
