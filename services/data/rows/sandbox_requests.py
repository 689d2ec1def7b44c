"""One request to a SandboxFusion through its SDK: bounded, tried again, its errors in one line."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_exponential

from shared.reading import data_error

DETAIL_LIMIT = 300  # characters of a server's message
RETRIED = (429, *range(500, 600))
LONGEST_WAIT = 30.0

# The SDK tells all that goes wrong as a bare Exception with this text.
_REFUSAL = re.compile(r"responded with code (\d+): (.*)", re.DOTALL)

# What the SDK lets through where an answer, or the address, is not as it must be.
_UNUSABLE = (
    aiohttp.InvalidURL,
    aiohttp.ContentTypeError,
    ValueError,
    TypeError,
    RecursionError,
)

# It also logs each error with the whole answer; here it becomes one line of a DataError.
logging.getLogger("sandbox_fusion").addHandler(logging.NullHandler())

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Patience:
    """``seconds`` a request may take; ``wait`` seconds before the second of ``attempts``.

    Each further wait is twice as long, up to 30 s.
    """

    seconds: float = 300.0
    attempts: int = 5
    wait: float = 0.5


class _TroubleError(Exception):
    """Something that may be gone at the next attempt."""


def ask(place: str, call: Callable[[], Coroutine[Any, Any, Answer]], patience: Patience) -> Answer:
    """What ``call`` answers, which is begun anew for each attempt. Not from inside an event loop.

    Raises:
        DataError: The server refuses, or there is no answer after the last attempt.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(_TroubleError),
        stop=stop_after_attempt(patience.attempts),
        wait=wait_exponential(patience.wait, max=LONGEST_WAIT),
        reraise=True,
    )
    try:
        return retrying(lambda: asyncio.run(_answer(place, call(), patience.seconds)))
    except _TroubleError as error:
        raise data_error(place, f"in {patience.attempts} attempts {error}") from None


async def _answer(place: str, call: Coroutine[Any, Any, Answer], seconds: float) -> Answer:
    try:
        return await asyncio.wait_for(call, seconds)
    except _UNUSABLE as error:
        cause = f"the answer is none of a SandboxFusion ({_short(error)}); check source.url"
        raise data_error(place, cause) from None
    except TimeoutError:
        cause = f"no answer within {seconds:g} s; see whether the server is overloaded"
        raise _TroubleError(cause) from None
    except (aiohttp.ClientError, OSError) as error:
        cause = f"no SandboxFusion could be reached ({_short(error)}); start it or mend source.url"
        raise _TroubleError(cause) from None
    # The SDK has no type of its own for a status other than 200.
    except Exception as error:  # noqa: BLE001
        raise _refusal(place, error) from None


def _refusal(place: str, error: Exception) -> Exception:
    found = _REFUSAL.search(str(error))
    if found is None:
        return error
    status, detail = int(found[1]), _detail(found[2])
    if status in RETRIED:
        return _TroubleError(
            f"the server failed ({status}: {detail}); check source.dataset and its log"
        )
    advice = "see that source.dataset is one of the server's data sets"
    return data_error(place, f"the server refuses ({status}: {detail}); {advice}")


def _detail(body: str) -> str:
    """What the server says went wrong, without its traceback."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    return _short(answer["detail"] if isinstance(answer, dict) and "detail" in answer else body)


def _short(what: object) -> str:
    text = " ".join(str(what).split()) or type(what).__name__
    return text if len(text) <= DETAIL_LIMIT else f"{text[:DETAIL_LIMIT]}…"
