"""The client: scores, programs and facts, for synchronous and asynchronous code."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from plumbline_reward.errors import NotJudgedError, RefusedError
from plumbline_reward.requests import call, in_thread, submit
from plumbline_reward.responses import ProgramResult, Verdict, parse_program_result
from plumbline_reward.settings import load_settings


class Client:
    """A client of Plumbline's reward service.

    It holds settings only and may be copied, pickled, and used from any thread, event loop and
    process; calls to one service share its connections and requests. Arguments that are not given
    come from the environment (``PLUMBLINE_REWARD_URL``, ``_TOKEN``, ``_TOKEN_FILE``, ``_TIMEOUT``,
    ``_SCORE``, ``_ON_UNJUDGED``).

    Args:
        url: Address of the service.
        token: The service's bearer token.
        timeout: Time limit of a call in seconds, with all its retries.
        score: The rule: ``pass_ratio``, ``accepted`` or ``threshold:0.9``.
        purpose: ``train`` or ``validation``; a data set with the role ``eval`` is refused for
            training.
        on_unjudged: ``raise``, or ``none`` to return None for what was not judged.

    Raises:
        ValueError: A setting is invalid.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float | None = None,
        score: str | None = None,
        purpose: str | None = None,
        on_unjudged: str | None = None,
    ) -> None:
        self.settings = load_settings(url, token, timeout, score, purpose, on_unjudged)

    def score(self, items: Iterable[Mapping[str, object]]) -> list[Verdict | None]:
        """Score completions; the verdicts are in the order of the items.

        An item has ``completion`` and either ``ground_truth`` (a reference, or inline tests with
        ``dataset`` for the judge's settings) or ``dataset`` and ``problem_id`` (and ``hash``).

        Raises:
            RefusedError: The service refuses an item, such as one of an unknown problem.
            NotJudgedError: An item was not judged in time; with ``on_unjudged="none"`` its place
                in the list is None instead.
        """
        futures = self._submit_all(items)
        try:
            return [self._outcome(future) for future in futures]
        finally:
            _cancel(futures)

    async def score_async(self, items: Iterable[Mapping[str, object]]) -> list[Verdict | None]:
        """Score completions, as :meth:`score`; cancelling it drops the items."""
        futures = self._submit_all(items)
        try:
            await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
            return [self._outcome(future) for future in futures]
        finally:
            _cancel(futures)

    def submit(self, item: Mapping[str, object]) -> "Future[Verdict]":
        """Have one completion scored and return the future of its verdict.

        Raises:
            RefusedError: The item cannot be written as JSON.
        """
        return self._submit_all([item])[0]

    def run(
        self, code: str, *, stdin: str = "", language: str = "python", timeout: float = 10.0
    ) -> ProgramResult:
        """Run a program in the sandbox; ``timeout`` in seconds is the program's own limit.

        Raises:
            RefusedError: The service refuses the request.
            NotJudgedError: The program was not run within the client's time limit.
        """
        program = {"code": code, "stdin": stdin, "language": language, "timeout": timeout}
        return call(self.settings, "/v1/run", parse_program_result, program)

    async def run_async(self, code: str, **options: Any) -> ProgramResult:
        """Run a program in the sandbox, as :meth:`run`."""
        return await asyncio.wrap_future(in_thread(partial(self.run, code, **options)))

    def info(self) -> dict[str, object]:
        """Return the service's version, data sets and judge settings; raises as :meth:`run`."""
        return call(self.settings, "/v1/info", dict)

    def _submit_all(self, items: Iterable[Mapping[str, object]]) -> "list[Future[Verdict]]":
        return submit([_encode(item) for item in items], self.settings)

    def _outcome(self, future: "Future[Verdict]") -> Verdict | None:
        try:
            return future.result()
        except NotJudgedError:
            if self.settings.on_unjudged == "none":
                return None
            raise


def score(items: Iterable[Mapping[str, object]], **options: Any) -> list[Verdict | None]:
    """Score completions with a :class:`Client` of these options; see :meth:`Client.score`."""
    return Client(**options).score(items)


def run(code: str, *, stdin: str = "", timeout: float = 10.0, **options: Any) -> ProgramResult:
    """Run a Python program with a :class:`Client` of these options; see :meth:`Client.run`."""
    return Client(**options).run(code, stdin=stdin, timeout=timeout)


def _cancel(futures: "list[Future[Verdict]]") -> None:
    for future in futures:
        future.cancel()


def _encode(item: Mapping[str, object]) -> bytes:
    """The JSON of an item without fields that are None; the service checks the others."""
    fields = {name: value for name, value in item.items() if value is not None}
    try:
        return json.dumps(fields, allow_nan=False, default=_plain).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise RefusedError(f"a request cannot be written as JSON: {error}") from None


def _plain(value: object) -> object:
    """Convert numpy's scalars and arrays, which parquet files bring along."""
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"{type(value).__name__} is no JSON")
    return convert()
