"""Rows of a data set on a SandboxFusion server, in the public layouts."""

import ast
import json
import re
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import Request

import sandbox_fusion as sdk
from sandbox_fusion.models import Language, Prompt
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_exponential

from services.data.config import LayoutKind, SandboxSource
from services.data.rows import Fields, Rows
from services.data.tokens import parse_python
from shared.address import Address
from shared.errors import DataError, data_error
from shared.process_environment import open_directly
from shared.redaction import redact
from shared.service.settings import SandboxClientSettings, load_settings
from shared.text import shorten_end

_PAGE = 100  # prompts per request
Key = int | str
Answer = TypeVar("Answer")

# It reads all of its input, because some servers report an error if a program exits earlier.
_IDLE_PROGRAM = "```python\nimport sys\nsys.stdin.read()\n```"
_CASE_SECONDS = 5.0
_DETAIL_CHARACTERS = 300
_SECONDS = 300.0  # longest silence of the server within a request
# Attempts of a request, and seconds between two: each pause is twice as long as the one before.
_ATTEMPTS, _FIRST_WAIT, _LONGEST_WAIT = 5, 0.5, 30.0


def rows(source: SandboxSource, layout: str, *, offline: bool) -> Rows:
    """Yield the server's rows with their places, in the order of the server's ids.

    Args:
        source: Server and data set.
        layout: Layout of the rows: "humaneval", "mbpp" or "code_contests".
        offline: Refuse, because nothing is cached.

    Raises:
        DataError: While iterating: server or data set cannot be used; one line with cause and
            advice.
    """
    if layout not in _LAYOUTS:
        cause = f"no sandbox layout {str(layout)!r}; choose one of {', '.join(_LAYOUTS)}"
        raise DataError(f"{source.dataset}: {cause}")
    dataset_class, get_page, convert = _LAYOUTS[layout]
    client = _Client(source, dataset_class)
    if offline:
        raise data_error(client.place, "offline, and rows of a server are not cached")
    ids: set[Key] = set()
    while prompts := get_page(client, len(ids)):
        for prompt in prompts:
            place = client.place_of(prompt.id)
            if prompt.id in ids:
                raise data_error(place, "the server has this id twice; fix its table")
            ids.add(prompt.id)
            yield place, convert(client, place, prompt)
    if not ids:
        raise data_error(client.place, "the data set has no problems; check the server's table")


# Requests


class _RetryableError(Exception):
    """A failure that may be transient."""


class _Client:
    """Client for one data set of one server.

    ``dataset_class`` is the server's class for data sets that are not registered there. All methods
    raise DataError, one line with the reason, if the server is unreachable or rejects the request.
    """

    def __init__(self, source: SandboxSource, dataset_class: str) -> None:
        self.dataset = source.dataset
        self._address = Address.parse(source.url)
        self.place = f"{self._address} {source.dataset}"
        self._class = dataset_class
        self._retrying = Retrying(
            retry=retry_if_exception_type(_RetryableError),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_exponential(_FIRST_WAIT, max=_LONGEST_WAIT),
            reraise=True,
        )
        self._checked = False

    def place_of(self, key: Key) -> str:
        return f"{self.place} id {key!r}"

    def prompts(self, offset: int, language: Language | None = None) -> list[Prompt]:
        """Get problems in the order of their ids; ``language`` is inserted into some prompts."""
        config = sdk.TestConfig(dataset_type=self._class, is_fewshot=False, language=language)
        request = sdk.GetPromptsRequest(
            dataset=self.dataset, config=config, offset=offset, limit=_PAGE
        )
        return self._request(self.place, "/get_prompts", request, _prompts)

    def cases(self, key: Key) -> list[tuple[str, str]]:
        """Get input and output of all tests, from the verdict on a program without output."""
        if not self._checked:
            # A server may stop at the first failed case, or truncate accepted ones.
            cases = [("", "x"), ("x" * 2000, "")]
            tests = [{"input": {"stdin": x}, "output": {"stdout": y}} for x, y in cases]
            record = {"id": 0, "content": "", "labels": {}, "test": tests}
            if self._judged_cases(0, record) != cases:
                cause = "the server does not return all test cases in full"
                options = "extra.run_all_cases, return_full_case"
                raise data_error(
                    str(self._address), f"{cause} ({options}); use a newer SandboxFusion"
                )
            self._checked = True
        return self._judged_cases(key)

    def _judged_cases(self, key: Key, record: Fields | None = None) -> list[tuple[str, str]]:
        config = sdk.TestConfig(
            dataset_type=self._class,
            language="python",
            run_timeout=_CASE_SECONDS,
            provided_data=record,
            extra={"run_all_cases": True, "return_full_case": True},
        )
        request = sdk.SubmitRequest(
            dataset=self.dataset, id=key, completion=_IDLE_PROGRAM, config=config
        )
        place = self.place_of(key)
        result = self._request(place, "/submit", request, sdk.EvalResult.parse_obj)
        return [_case(f"{place} case {n}", test.test_info) for n, test in enumerate(result.tests)]

    def _request(
        self,
        place: str,
        path: str,
        request: sdk.GetPromptsRequest | sdk.SubmitRequest,
        parse: Callable[[Any], Answer],
    ) -> Answer:
        """Post a request; retryable failures are retried with backoff."""
        headers = load_settings(SandboxClientSettings).sandbox_headers | self._address.headers
        headers["Content-Type"] = "application/json"
        url, body = f"{self._address.url}{path}", request.json().encode()

        def attempt() -> Answer:
            try:
                with open_directly(Request(url, body, headers), _SECONDS) as response:
                    return parse(json.load(response))
            except HTTPError as error:
                raise _refusal(place, error) from None
            except TimeoutError:
                cause = f"no answer within {_SECONDS:g} s"
                raise _RetryableError(f"{cause}; check whether the server is overloaded") from None
            except (OSError, IncompleteRead) as error:
                cause = f"cannot connect to SandboxFusion ({_shorten(error)})"
                raise _RetryableError(f"{cause}; start it or fix source.url") from None
            except (HTTPException, ValueError, TypeError, RecursionError) as error:
                cause = f"not a response of SandboxFusion ({_shorten(error)}); check source.url"
                raise data_error(place, cause) from None

        try:
            return self._retrying(attempt)
        except _RetryableError as error:
            raise data_error(place, f"{_ATTEMPTS} attempts failed: {error}") from None


def _prompts(answer: list[Any]) -> list[Prompt]:
    return [Prompt.parse_obj(prompt) for prompt in answer]


def _case(place: str, info: dict[str, object] | None) -> tuple[str, str]:
    """Parse a case; other keys name files, which the server does not compare."""
    match info:
        case {"input": {"stdin": str() as stdin}, "output": {"stdout": str() as stdout}}:
            return stdin, stdout
    cause = "the server's answer has no test_info with input.stdin and output.stdout"
    raise data_error(place, f"{cause}; check that its table is a CommonOJDataset")


def _refusal(place: str, error: HTTPError) -> DataError | _RetryableError:
    body = error.reason
    with suppress(OSError, HTTPException, ValueError, RecursionError, TypeError, KeyError):
        body = error.read().decode("utf-8", "replace")
        body = json.loads(body)["detail"]  # without its traceback
    reason = f"{error.code}: {_shorten(body)}"
    if error.code == HTTPStatus.TOO_MANY_REQUESTS or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _RetryableError(f"the server failed ({reason}); check source.dataset and its log")
    advice = "check that source.dataset is one of the server's data sets"
    return data_error(place, f"the server refused the request ({reason}); {advice}")


def _shorten(what: object) -> str:
    text = redact(" ".join(str(what).split())) or type(what).__name__
    return shorten_end(text, _DETAIL_CHARACTERS)


# Layouts, which validate the rows


def _humaneval(_client: _Client, _place: str, prompt: Prompt) -> Fields:
    return prompt.labels | {"prompt": prompt.prompt}


_PREFIX = "You are an expert Python programmer, and here is your task: "
_BEFORE_TESTS = " Your code should pass these tests:\n\n"


def _mbpp(_client: _Client, place: str, prompt: Prompt) -> Fields:
    """Split MBPP's prompt into the text of the problem and its tests.

    Source of the format: SandboxFusion 469de08, ``sandbox/datasets/mbpp.py``, without few shots.
    """
    text, sentence, joined = prompt.prompt.removeprefix(_PREFIX).rpartition(_BEFORE_TESTS)
    body = _statements(joined)
    if not prompt.prompt.startswith(_PREFIX) or not sentence or not body:
        cause = "the prompt does not have SandboxFusion's format for MBPP, with tests in Python"
        raise data_error(place, f"{cause}; use a server with the published MBPPDataset")
    tests = re.split(r"\n(?=assert\b)", joined)
    alone = all(
        len(body) == 1 and isinstance(body[0], ast.Assert) for body in map(_statements, tests)
    )
    tests = tests if alone else [joined]
    return prompt.labels | {"task_id": prompt.id, "text": text, "test_list": tests}


def _statements(code: str) -> list[ast.stmt]:
    tree = parse_python(code)
    return tree.body if tree else []


def _contest_page(client: _Client, offset: int) -> list[Prompt]:
    """Get prompts without the final paragraph, which names the programming language.

    It is the paragraph that differs between two languages, so its wording does not matter.
    """
    pythons = client.prompts(offset, "python")
    others = client.prompts(offset, "cpp")
    if [prompt.id for prompt in pythons] != [prompt.id for prompt in others]:
        raise data_error(client.place, "the data set changed while it was fetched; run again")
    prompts = []
    for python, other in zip(pythons, others, strict=True):
        content, break_, sentence = python.prompt.rpartition("\n\n")
        other_content, _, other_sentence = other.prompt.rpartition("\n\n")
        if not break_ or content != other_content or sentence == other_sentence:
            cause = "the prompt does not end with a paragraph about the language"
            advice = "check that the table is a CommonOJDataset"
            raise data_error(client.place_of(python.id), f"{cause}; {advice}")
        prompts.append(python.copy(update={"prompt": content}))
    return prompts


def _contest(client: _Client, _place: str, prompt: Prompt) -> Fields:
    """Convert a contest problem; all tests count as private, because the server merges them.

    ``name`` includes the id, because names on the server are not unique.
    """
    cases = client.cases(prompt.id)
    difficulty = prompt.labels.get("difficulty")
    if isinstance(difficulty, str) and len(difficulty) > 1:  # a word, not Codeforces' letter
        difficulty = difficulty.lower().removesuffix("_difficulty")
    return {
        "id": prompt.id,
        "name": f"{prompt.labels.get('name') or client.dataset} #{prompt.id}",
        "description": prompt.prompt,
        "difficulty": difficulty,
        "public_tests": {"input": [], "output": []},
        "private_tests": {
            "input": [stdin for stdin, _ in cases],
            "output": [stdout for _, stdout in cases],
        },
    }


_Page = Callable[[_Client, int], list[Prompt]]
_Convert = Callable[[_Client, str, Prompt], Fields]
# The server's class of data sets, and how its prompts become rows.
_LAYOUTS: dict[str, tuple[str, _Page, _Convert]] = {
    LayoutKind.HUMANEVAL: ("HumanEvalDataset", _Client.prompts, _humaneval),
    LayoutKind.MBPP: ("MBPPDataset", _Client.prompts, _mbpp),
    LayoutKind.CODE_CONTESTS: ("CommonOJDataset", _contest_page, _contest),
}
