"""What passes without a solution where the tests run in the answer's process, and is known."""

import textwrap

import pytest

from services.judge.sandbox import SandboxClient
from tests.judge.tasks import judge_code, with_tests

pytestmark = pytest.mark.hostile

MBPP = with_tests(test_list=["assert twice(2) == 4", "assert twice(3) == 6"])
# Instances of the answer's class are arguments, so the tests run in the answer's process.
SHARED = with_tests(test_list=["assert twice(Number(2)) == 4", "assert twice(Number(3)) == 6"])
NUMBER = "class Number:\n    def __init__(self, n): self.n = n\n"
NOT_PREVENTED = {
    # Tests of equality ask the answer's own object whether it is equal.
    "equal to everything": """
        class Same:
            def __eq__(self, other): return True
        def twice(x): return Same()
        """,
    # What runs the tests is on the answer's stack.
    "frames": """
        import os, sys
        def twice(x):
            frame = sys._getframe()
            while 'token' not in frame.f_locals:
                frame = frame.f_back
            own = frame.f_locals
            own['write'](own['out'], f"\\n{own['token']} {[1] * len(own['tests'])}\\n".encode())
            own['leave'](0)
        """,
}


@pytest.mark.parametrize("name", NOT_PREVENTED)
async def test_what_is_known_to_pass_in_a_shared_process(sandbox: SandboxClient, name: str) -> None:
    """Not wanted, but known, and the verdict says so."""
    code = f"{NUMBER}{textwrap.dedent(NOT_PREVENTED[name])}"
    verdict = await judge_code(sandbox, SHARED, code)
    assert (verdict.accepted, verdict.shared_process) == (True, True)
    assert not (await judge_code(sandbox, MBPP, code)).accepted


async def test_arguments_are_the_answers_to_change(sandbox: SandboxClient) -> None:
    """Tests that compare a result with an argument accept that too: the same in any process."""
    problem = with_tests(test_list=["x = [3, 1]", "assert ordered(x) == sorted(x)"])
    verdict = await judge_code(sandbox, problem, "def ordered(x): x.clear(); return x")
    assert (verdict.accepted, verdict.shared_process) == (True, False)
