"""An answer that imports a module which the sandbox does not have."""

from services.judge.sandbox import SandboxClient
from shared.statuses import FinalStatus, VerdictDetail
from tests.judge.tasks import HUMANEVAL, MBPP, judge_code, stdio, together

CALLS = stdio(("1", "2"), fn_name="inc")
READS = "print(int(input()) + 1)"
INC = "def inc(n):\n    return n + 1"
# Problem, method, answer after its import.
KINDS = {
    "program": (stdio(("1", "2")), "batch", READS),
    "program by verl": (stdio(("1", "2")), "compute_score", READS),
    "program by SandboxFusion": (stdio(("1", "2")), "submit", READS),
    "HumanEval": (HUMANEVAL, "batch", INC),
    "HumanEval by SandboxFusion": (HUMANEVAL, "submit", INC),
    "MBPP": (MBPP, "batch", INC),
    "call by name": (CALLS, "batch", INC),
    "import in the function": (HUMANEVAL, "batch", INC.replace("return", "import x.y\n    return")),
}


async def test_the_module_is_named(sandbox: SandboxClient) -> None:
    async def judged(kind: str) -> tuple[FinalStatus, object, str | None]:
        given, method, code = KINDS[kind]
        answer = code if "import" in code else f"from redis.client import Redis\n{code}"
        verdict = await judge_code(sandbox, given, answer, f"judge.method={method}")
        return verdict.final_status, verdict.detail, verdict.missing_module

    results = await together(KINDS, judged)
    for kind, (status, detail, module) in results.items():
        name = "x" if "import" in kind else "redis"
        assert status is FinalStatus.RUNTIME_ERROR, kind
        assert (detail, module) == (VerdictDetail.MISSING_MODULE, name), kind


async def test_what_is_promised_is_there(sandbox: SandboxClient) -> None:
    uses = {
        "numpy": "numpy.array([1]).sum() + 1",
        "scipy": "int(scipy.special.comb(2, 1))",
        "sympy": "sympy.nextprime(1)",
        "sortedcontainers": "len(sortedcontainers.SortedList([1, 1]))",
        "nltk": "nltk.edit_distance('ab', 'cd')",
    }

    async def accepted(module: str) -> bool:
        code = f"import {module}\n{'import scipy.special' if module == 'scipy' else ''}"
        code += f"\nprint({uses[module]})"
        return (await judge_code(sandbox, stdio(("", "2")), code)).accepted

    assert await together(uses, accepted) == dict.fromkeys(uses, True)
