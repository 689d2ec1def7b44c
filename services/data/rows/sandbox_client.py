"""Client of SandboxFusion's data-set API: prompts and test cases, retry with backoff."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import aiohttp
import sandbox_fusion as sdk
from sandbox_fusion.models import Language
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_exponential

from services.data.config import SandboxSource
from shared.address import Address
from shared.errors import DataError, data_error
from shared.redaction import redact
from shared.sandbox_sdk import Exchange
from shared.service.settings import SandboxClientSettings, load_settings

# It reads all of its input, because some servers report an error if a program exits earlier.
IDLE_PROGRAM = "```python\nimport sys\nsys.stdin.read()\n```"
CASE_SECONDS = 5.0
DETAIL_LIMIT = 300  # characters of a server's message
RETRIED = (HTTPStatus.TOO_MANY_REQUESTS, *range(500, 600))
LONGEST_WAIT = 30.0  # seconds

# Raised for an invalid address, or a response that is not from SandboxFusion.
_INVALID = (
    aiohttp.InvalidURL,
    aiohttp.ContentTypeError,
    ValueError,
    TypeError,
    RecursionError,
)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One problem in the response of ``get_prompts``."""

    id: int | str
    text: str
    labels: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Standard input and expected output of a test."""

    stdin: str
    stdout: str


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """Retry limits of one request.

    ``seconds`` is the time limit of an attempt; ``wait`` is the pause in seconds before the second
    of ``attempts``. Each further pause is twice as long, up to 30 s.
    """

    seconds: float = 300.0
    attempts: int = 5
    wait: float = 0.5


class DatasetApiClient:
    """Synchronous client for one data set of one server.

    ``dataset_class`` is the server's class for data sets that are not registered there. All methods
    raise DataError, one line with the reason, if the server is unreachable or rejects the request.
    Do not call them inside an event loop.
    """

    def __init__(self, source: SandboxSource, dataset_class: str, budget: RetryBudget) -> None:
        self.dataset = source.dataset
        self._address = Address.parse(source.url)
        self.place = f"{self._address} {source.dataset}"
        self._extra = {} if source.split is None else {"split": source.split}
        self._class = dataset_class
        self._budget = budget
        self._returns_all_cases = False

    def prompts(self, offset: int, limit: int, language: Language | None = None) -> list[Prompt]:
        """Get problems in the order of their ids; ``language`` is inserted into some prompts."""
        request = sdk.GetPromptsRequest(
            dataset=self.dataset,
            config=sdk.TestConfig(
                dataset_type=self._class, is_fewshot=False, language=language, extra=self._extra
            ),
            offset=offset,
            limit=limit,
        )
        found = self._request(self.place, sdk.get_prompts_async, request)
        return [Prompt(one.id, one.prompt, one.labels) for one in found]

    def cases(self, key: int | str) -> list[Case]:
        """Get all test cases of a problem, from the verdict on a program without output."""
        if not self._returns_all_cases:
            self._check_cases()
        return self._judged_cases(key)

    def _check_cases(self) -> None:
        """Reject a server that stops at the first failed case, or truncates accepted cases."""
        cases = [Case("", "x"), Case("x" * 2000, "")]
        record: dict[str, object] = {
            "id": 0,
            "content": "",
            "labels": {},
            "test": [
                {"input": {"stdin": case.stdin}, "output": {"stdout": case.stdout}}
                for case in cases
            ],
        }
        if self._judged_cases(0, record) != cases:
            cause = (
                "the server does not return all test cases in full "
                "(extra.run_all_cases, return_full_case)"
            )
            raise data_error(str(self._address), f"{cause}; use a newer SandboxFusion")
        self._returns_all_cases = True

    def _judged_cases(self, key: int | str, record: dict[str, object] | None = None) -> list[Case]:
        config = sdk.TestConfig(
            dataset_type=self._class,
            language="python",
            run_timeout=CASE_SECONDS,
            provided_data=record,
            extra=self._extra | {"run_all_cases": True, "return_full_case": True},
        )
        request = sdk.SubmitRequest(
            dataset=self.dataset, id=key, completion=IDLE_PROGRAM, config=config
        )
        place = f"{self.place} id {key!r}"
        result = self._request(place, partial(sdk.submit_async, max_attempts=1), request)
        return [_case(f"{place} case {n}", test.test_info) for n, test in enumerate(result.tests)]

    def _request(
        self,
        place: str,
        function: Callable[..., Coroutine[Any, Any, Answer]],
        request: sdk.GetPromptsRequest | sdk.SubmitRequest,
    ) -> Answer:
        """Call a function of the SDK; retryable failures are retried with backoff."""
        budget = self._budget
        retrying = Retrying(
            retry=retry_if_exception_type(_RetryableError),
            stop=stop_after_attempt(budget.attempts),
            wait=wait_exponential(budget.wait, max=LONGEST_WAIT),
            reraise=True,
        )

        def attempt() -> Answer:
            return asyncio.run(_attempt(place, self._address, function, request, budget.seconds))

        try:
            return retrying(attempt)
        except _RetryableError as error:
            raise data_error(place, f"{budget.attempts} attempts failed: {error}") from None


def _case(place: str, info: dict[str, Any] | None) -> Case:
    """Parse a case; other keys name files, which the server does not compare."""
    match info:
        case {"input": {"stdin": str() as stdin}, "output": {"stdout": str() as stdout}}:
            return Case(stdin, stdout)
    cause = "the server's answer has no test_info with input.stdin and output.stdout"
    raise data_error(place, f"{cause}; check that its table is a CommonOJDataset")


# One attempt


class _RetryableError(Exception):
    """A failure that may be transient."""


async def _attempt(
    place: str,
    address: Address,
    function: Callable[..., Awaitable[Answer]],
    request: sdk.GetPromptsRequest | sdk.SubmitRequest,
    seconds: float,
) -> Answer:
    async def read(response: aiohttp.ClientResponse) -> bytes:
        body = await response.content.read()
        if response.status != HTTPStatus.OK:
            raise _refusal(place, response.status, body.decode("utf-8", "replace"))
        return body

    headers = {**load_settings(SandboxClientSettings).sandbox_headers, **address.headers}
    exchange = Exchange(headers, aiohttp.ClientTimeout(total=seconds), read)
    try:
        return await exchange.call(function, request, endpoint=address.url)
    except _INVALID as error:
        cause = f"not a response of SandboxFusion ({_shorten(error)}); check source.url"
        raise data_error(place, cause) from None
    except TimeoutError:
        cause = f"no answer within {seconds:g} s; check whether the server is overloaded"
        raise _RetryableError(cause) from None
    except (aiohttp.ClientError, OSError) as error:
        cause = f"cannot connect to SandboxFusion ({_shorten(error)}); start it or fix source.url"
        raise _RetryableError(cause) from None


def _refusal(place: str, status: int, body: str) -> DataError | _RetryableError:
    reason = f"{status}: {_detail(body)}"
    if status in RETRIED:
        return _RetryableError(f"the server failed ({reason}); check source.dataset and its log")
    advice = "check that source.dataset is one of the server's data sets"
    return data_error(place, f"the server refused the request ({reason}); {advice}")


def _detail(body: str) -> str:
    """Extract the server's error message without its traceback."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    return _shorten(answer["detail"] if isinstance(answer, dict) and "detail" in answer else body)


def _shorten(what: object) -> str:
    text = redact(" ".join(str(what).split())) or type(what).__name__
    return text if len(text) <= DETAIL_LIMIT else f"{text[:DETAIL_LIMIT]}…"
