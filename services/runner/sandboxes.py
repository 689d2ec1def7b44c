"""Preflight checks of sandboxes: reachable, admitted, and with what the problems need."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import aiohttp
from pydantic import ValidationError

from services.runner.preflight import Needs
from services.runner.responses import RejectedError, RetryableError, send
from shared.address import Address
from shared.errors import ConfigError, ServiceError, UnavailableError
from shared.function_plan import failed_imports, import_program
from shared.harness.languages import LANGUAGES
from shared.harness.sandbox_api import RunCodeResponse, RunStatus

_MAX_ANSWER = 2**24
_PING_SECONDS = 10.0
# Seconds; the first compilation of Go compiles its library too.
_COMPILE_SECONDS = 60
_BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_ADVICE = "start it, set sandbox.url (or SANDBOX_URLS), or use --embedded"


async def check_sandboxes(urls: Sequence[str], *, headers: Mapping[str, str] | None = None) -> None:
    """Ping every sandbox, and check that it admits requests with these headers.

    Raises:
        ServiceError: A sandbox is unreachable, or is not a SandboxFusion server.
        ConfigError: It requires another token.
    """
    limit = aiohttp.ClientTimeout(total=_PING_SECONDS)
    async with aiohttp.ClientSession(timeout=limit, headers=headers) as session:
        for address in map(_sandbox, urls):
            status, body = await _send(session, address, "GET", "/v1/ping")
            if status != HTTPStatus.OK or b"pong" not in body:
                raise ServiceError(
                    f"the server at {address.url} is not a SandboxFusion server (GET /v1/ping "
                    f"returned {status}); {_ADVICE}"
                )
            status, _ = await _send(session, address, "HEAD", "/run_cases")
            if status == HTTPStatus.UNAUTHORIZED:
                raise ConfigError(
                    f"the sandbox at {address.url} requires a token, and PLUMBLINE_SANDBOX_TOKEN "
                    "(or PLUMBLINE_SANDBOX_TOKEN_FILE) is not it; set it for plumb and for the "
                    "judges"
                )


async def check_needs(
    urls: Sequence[str], needs: Needs, *, headers: Mapping[str, str] | None = None
) -> None:
    """Run a program in each of the languages in every sandbox, and try what the tests import.

    Raises:
        ConfigError: A sandbox lacks the toolchain of a language or a module.
        ServiceError: A sandbox is unreachable.
    """
    timeout = aiohttp.ClientTimeout(total=3 * _COMPILE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        for address in map(_sandbox, urls):
            for language in needs.languages:
                answer = await _run(session, address, language, LANGUAGES[language].idle)
                if answer is not None and answer.status is not RunStatus.SUCCESS:
                    failed = answer.run_result or answer.compile_result
                    reason = answer.message or (failed and failed.stderr) or answer.status
                    raise ConfigError(
                        f"{address.url} cannot run {language}: {' '.join(reason.split())[:200]}; "
                        f"install its toolchain there (Debian's {LANGUAGES[language].packages}), "
                        "or choose another sandbox or data set"
                    )
            if needs.imports:
                answer = await _run(session, address, "python", import_program(needs.imports))
                stdout = answer.stdout if answer else ""
                for statement, reason in (failed_imports(stdout.encode()) or {}).items():
                    raise ConfigError(
                        f"{needs.imports.get(statement, statement)}: its tests cannot run in the "
                        f"sandbox at {address.url}: {statement!r}: {reason}; install the module "
                        "there, or set judge.allow_test_errors=true and get no verdict on such "
                        "problems"
                    )


def _sandbox(url: str) -> Address:
    return Address.parse(url.rstrip("/").removesuffix("/run_code"))


async def _run(
    session: aiohttp.ClientSession, address: Address, language: str, code: str
) -> RunCodeResponse | None:
    """Run a program; None if the sandbox is busy, which is no reason to refuse the run."""
    request: dict[str, object] = {"code": code, "language": language}
    request |= dict.fromkeys(("compile_timeout", "run_timeout"), _COMPILE_SECONDS)
    status, body = await _send(session, address, "POST", "/run_code", request)
    if status in _BUSY:
        return None
    try:
        return RunCodeResponse.model_validate_json(body)
    except ValidationError:
        message = "it does not answer as a SandboxFusion server"
        return RunCodeResponse(status=RunStatus.SANDBOX_ERROR, message=message)


async def _send(
    session: aiohttp.ClientSession,
    address: Address,
    method: str,
    path: str,
    document: object = None,
) -> tuple[int, bytes]:
    """Send a request; returns status and body.

    Raises:
        ServiceError: The address is none, or the sandbox does not answer.
    """
    url, headers = address.url, address.headers
    request = session.request(method, f"{url}{path}", json=document, headers=headers)
    try:
        status, _, body = await send(request, address.name, _MAX_ANSWER)
    except RejectedError as error:
        raise ServiceError(f"the sandbox at {url} is not reachable: {error}") from None
    except RetryableError as error:
        raise UnavailableError(
            f"the sandbox at {url} is not reachable: {error}; {_ADVICE}"
        ) from None
    return status, body
