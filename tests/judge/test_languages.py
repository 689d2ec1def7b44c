"""Programs in every language of the table whose toolchain is installed: statuses and limits."""

from collections.abc import Iterator

import pytest

from services.judge.sandbox import SandboxClient
from shared.harness.languages import LANGUAGES, PROGRAMS
from shared.schemas import Verdict
from shared.statuses import FinalStatus
from tests.judge.language_programs import KINDS, LARGE, SMALL, expected, is_installed, program
from tests.judge.pools import OpenPool
from tests.judge.tasks import judge_code, stdio, together
from tests.sandbox.installations import python_for
from tests.sandboxes import own_sandbox, rungs

INSTALLED = [name for name in PROGRAMS if is_installed(name)]
QUICK = ("right", "wrong", "compile error", "memory-hungry", "exit code")
# A case that is not killed for its time may take this long on a busy machine.
OVERRIDES = ("judge.confirm_timeouts=false", "sandbox.memory_limit_mb=256", "judge.max_output_mb=1")


async def judge(sandbox: SandboxClient, language: str, kind: str, code: str) -> Verdict:
    late = expected(language, kind)[0] is FinalStatus.TIMEOUT
    tests = stdio(SMALL, LARGE) if kind == "right" else stdio(SMALL)
    seconds = f"sandbox.timeout={1 if late else 20}"
    options = (*OVERRIDES, f"judge.language={language}", seconds)
    label = LANGUAGES[language].labels[0]
    return await judge_code(sandbox, tests, code, *options, language=label)


async def check(sandbox: SandboxClient, kinds: tuple[str, ...]) -> None:
    async def one(pair: tuple[str, str]) -> Verdict:
        language, kind = pair
        return await judge(sandbox, language, kind, program(language, kind))

    pairs = [(language, kind) for language in INSTALLED for kind in kinds]
    verdicts = await together(pairs, one, 2)
    found = {pair: (verdict.final_status, verdict.detail) for pair, verdict in verdicts.items()}
    wrong = {
        pair: (status, detail)
        for pair, (status, detail) in found.items()
        if status is not expected(*pair)[0] or expected(*pair)[1] not in (None, detail)
    }
    assert not wrong, [verdicts[pair].first_failed_case for pair in wrong]


async def test_statuses_and_limits(sandbox: SandboxClient) -> None:
    await check(sandbox, QUICK)


@pytest.fixture(params=rungs("bwrap", "landlock", "none"), scope="module")
def url_of_rung(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("rung")
    kind = request.param
    variables = {
        "PLUMBLINE_SANDBOX_ISOLATION": kind,
        "PLUMBLINE_SANDBOX_PYTHON": str(python_for(kind)),
    }
    with own_sandbox(folder, **variables) as url:
        yield url


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_every_kind_of_program_on_every_rung(url_of_rung: str) -> None:
    async with SandboxClient(OpenPool([url_of_rung]), max_attempts=2, retry_budget=30) as client:
        await check(client, tuple(KINDS))
