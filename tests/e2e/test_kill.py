"""kill -9 of every process during a run does not change the results."""

import json
import signal
from pathlib import Path

import pytest

from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# Slow enough to be hit in mid-run, small enough to be run several times.
_SMALL = (
    "data.limit=3",
    "generation.concurrency=2",
    "generation.replay.latency=0.3",
    "sandbox.timeout=2",
    # The round of a killed judge would be waited for.
    "judge.canaries=false",
    # The second judge is a process of its own.
    "judge.workers=2",
)
# For what stops a run before its end, however late a busy machine is with it.
_SLOW = (*_SMALL, "generation.replay.latency=2")

_PARTS = (
    "services.judge",
    "services.sandbox",
    "services.generator",
    "redis",
)


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in plumb.SHORT_LEASE.items():
        monkeypatch.setenv(name, seconds)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    done = plumb.plumb(plumb.demo_run(output, *_SMALL))
    assert done.returncode == 0, done.stderr
    return plumb.numbers(output)


def test_killed_parts_are_started_again(tmp_path: Path, undisturbed: dict[str, object]) -> None:
    output = tmp_path / "out"
    with plumb.running(plumb.demo_run(output, *_SMALL), output) as process:
        for number, part in enumerate(_PARTS):
            wanted = 2 * number + 1
            plumb.wait_for(lambda n=wanted: plumb.verdicts_so_far(output) >= n, "verdicts")
            plumb.child(process.pid, part).kill()
        assert process.wait(200) == 0, output.with_suffix(".log").read_text()
    _same(output, undisturbed)


@pytest.mark.parametrize(
    "sign", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_a_killed_or_interrupted_run_leaves_nothing_running_and_goes_on_later(
    sign: signal.Signals, tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    output = tmp_path / "out"
    with plumb.running(plumb.demo_run(output, *_SLOW), output) as process:
        plumb.wait_for(lambda: plumb.verdicts_so_far(output) >= 2, "verdicts")
        family = plumb.children(process.pid)
        process.kill()
        plumb.wait_until_gone(family)
    assert json.loads((output / "run.json").read_text())["complete"] is False
    with plumb.running(plumb.demo_run(output, *_SLOW), output) as process:
        plumb.wait_for(lambda: plumb.verdicts_so_far(output) >= 4, "verdicts")
        family = plumb.children(process.pid)
        process.send_signal(sign)
        assert process.wait(60) == 130
        log = output.with_suffix(".log").read_text()
        assert log.endswith("plumb: interrupted; repeat the command to resume\n")
        assert "Traceback" not in log
        plumb.wait_until_gone(family)
    done = plumb.plumb(plumb.demo_run(output, *_SMALL))
    assert done.returncode == 0, done.stderr
    _same(output, undisturbed)
    assert json.loads((output / "run.json").read_text())["sessions"] == 3


@pytest.mark.parametrize(
    ("part", "sign"),
    [
        ("services.sandbox", signal.SIGINT),
        ("redis", signal.SIGTERM),
        pytest.param("services.sandbox", signal.SIGTERM, marks=pytest.mark.nightly),
    ],
)
def test_a_command_that_is_interrupted_before_its_run_begins_says_so(
    part: str, sign: signal.Signals, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with plumb.running(plumb.demo_run(output, *_SMALL), output) as process:
        plumb.wait_for(lambda: plumb.has_child(process.pid, part), part)
        process.send_signal(sign)
        assert process.wait(60) == 130
        log = output.with_suffix(".log").read_text()
        assert log.startswith("plumb: interrupted; repeat the command")
        assert len(log.splitlines()) == 1


def _same(output: Path, undisturbed: dict[str, object]) -> None:
    assert plumb.numbers(output) == undisturbed
    run = json.loads((output / "run.json").read_text())
    assert run["complete"] is True
    assert run["samples"] == run["samples_judged"] == run["verdicts_written"]
    assert run["duplicate_verdicts"] == 0
