"""A round of `make chaos ARGS='--stack compose'` on the stack of the other tests."""

from functools import partial
from pathlib import Path

import pytest

from tests.chaos.compose import Round, settled, undisturbed, volume
from tests.chaos.compose_schedule import AIMED, ContainerFault, session
from tests.chaos.invariants import Invariant, Violation
from tests.chaos.report import Report
from tests.compose.conftest import Step
from tests.compose.stack import Stack, docker

pytestmark = [pytest.mark.nightly, pytest.mark.compose, pytest.mark.timeout(300)]
SIZE = "data.limit=1"
KINDS = (
    ContainerFault.KILL,
    ContainerFault.DOWN,
    ContainerFault.PROCESS,
    ContainerFault.PARTITION,
    ContainerFault.LOSS,
)


def test_a_round_of_faults_changes_nothing(stack: Stack, tmp_path: Path, step: Step) -> None:
    expected, report = undisturbed(stack, SIZE), Report(ContainerFault, AIMED)
    draw = partial(session, dense=True)
    one = Round(1, stack, tmp_path / "logs", SIZE, KINDS, expected, report, draw)
    one.run()
    if one.found:
        one.tell("--stack compose --dense --replay 1")
    assert not one.found
    assert sum(report.made.values()) >= 3
    check_that_planted_violations_are_found(one, stack)
    step.done(f"round of chaos with {sum(report.made.values())} faults")


def check_that_planted_violations_are_found(one: Round, stack: Stack) -> None:
    planted = volume(stack, "outputs") / "planted.tmp"
    planted.touch()
    assert one.left_files() == [Violation(Invariant.TEMPORARY, "planted.tmp")]
    planted.unlink()
    (generator,) = stack.containers("generator")
    docker("kill", generator)
    assert [*one.recovered()] == [Violation(Invariant.CONTAINERS, "0 of generator")]
    docker("start", generator)
    assert settled(one.recovered, 60.0) == []
