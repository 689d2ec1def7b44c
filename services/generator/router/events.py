"""Server-sent events: whole ones out of a stream of bytes, and what they say."""

import json
import re
from dataclasses import dataclass

from services.generator.router.answers import is_aborted
from services.generator.router.failures import AttemptError, Reason

_LONGEST_EVENT = 8 * 2**20
_BOUNDARY = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)")


class EventSplitter:
    """Holds back what is not a whole event yet."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """All whole events so far that were not given yet, as they came.

        Raises:
            AttemptError: An event beyond 8 MiB.
        """
        data = self._rest + data if self._rest else data
        end = max(_end(data, b"\n\n"), _end(data, b"\r\n\r\n"))
        self._rest = data[end:]
        if len(self._rest) > _LONGEST_EVENT:
            raise AttemptError(Reason.BROKEN_STREAM, "an event of the stream is beyond 8 MiB")
        return data[:end]


def _end(data: bytes, mark: bytes) -> int:
    found = data.rfind(mark)
    return found + len(mark) if found >= 0 else 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """What makes an event one that must not reach the client."""

    reason: Reason
    message: str


def sound_part(block: bytes) -> tuple[bytes, Trouble | None]:
    """The events up to the first that says the engine gave up, and what that one says."""
    if b'"abort"' not in block and b'"error"' not in block:
        return block, None
    sound = 0
    for event in _BOUNDARY.split(block):
        if trouble := _trouble(decode(event)):
            return block[:sound], trouble
        sound += len(event)
    return block, None


def is_hollow(block: bytes) -> bool:
    """Whether no event has text or an end in it, such as the one that only names the role."""
    return all(_says_nothing(event) for event in _BOUNDARY.split(block) if event.strip())


def is_done(block: bytes) -> bool:
    return block.rstrip().endswith(b"[DONE]")


def decode(event: bytes) -> object:
    """The JSON of an event, None where it has none."""
    lines = [line[5:] for line in event.splitlines() if line.startswith(b"data:")]
    try:
        return json.loads(b"\n".join(lines)) if lines else None
    except (ValueError, RecursionError):
        return None


def _trouble(document: object) -> Trouble | None:
    if is_aborted(document):
        return Trouble(Reason.ABORT, "the replica aborted the request")
    error = document.get("error") if isinstance(document, dict) else None
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 500:
        return None  # the client's own fault, for it to read
    message = error.get("message") if isinstance(error, dict) else error
    return Trouble(Reason.SERVER_ERROR, f"the replica's stream says: {message}"[:500])


def _says_nothing(event: bytes) -> bool:
    if event.startswith(b":"):
        return True  # a comment, which keeps the connection alive
    document = decode(event)
    choices = document.get("choices") if isinstance(document, dict) else None
    return isinstance(choices, list) and bool(choices) and all(map(_is_empty, choices))


def _is_empty(choice: object) -> bool:
    if not isinstance(choice, dict) or choice.get("finish_reason") is not None:
        return False
    delta = choice.get("delta")
    said = {**delta, "role": None} if isinstance(delta, dict) else {"text": choice.get("text")}
    return not any(said.values())
