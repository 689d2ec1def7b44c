"""`make bench-judge`: the judge with this repository's sandbox against other judges.

Both sides judge the same answers with the same interpreter in alternating passes: `batch`, and
verl's `compute_score` with SandboxFusion, whose checkout is an option. Their verdicts are compared.
`PLUMBLINE_REAL_DATA` names the folder of public data; without it the answers are the demo's, with
their cases repeated.
"""

import argparse
import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

from shared.config import load_config
from tests.bench.answers import real_data, stdio_answers
from tests.bench.judges import by_method, by_verl, client
from tests.bench.passes import Side, compare
from tests.bench.servers import CORES, Server, our_sandbox, sandbox_fusion
from tests.parity.verl import ScorerMissingError

_LIMITS = ["sandbox.timeout=10", "sandbox.memory_limit_mb=1024"]
# The comparison of verl.
_EXACT = [*_LIMITS, "judge.method=batch", "judge.checker=exact"]


def main() -> None:
    arguments = _arguments()
    data = "public data" if real_data() else "the demo's answers, their cases repeated"
    print(f"{CORES} cores; answers: {data}")
    with tempfile.TemporaryDirectory() as folder:
        _against_verl(arguments, Path(folder))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--answers", type=int, default=12)
    parser.add_argument("--cases", type=int, nargs="*", default=[20, 100])
    parser.add_argument("--at-once", type=int, default=CORES, help="completions in flight")
    parser.add_argument("--sandbox-fusion", type=Path, help="checkout with a .venv that runs it")
    parser.add_argument("--slots", type=int, default=2 * CORES, help="verl's calls at once")
    return parser.parse_args()


def _against_verl(arguments: argparse.Namespace, folder: Path) -> None:
    with ExitStack() as stack:
        ours = stack.enter_context(our_sandbox(folder / "ours"))
        theirs = ours
        if arguments.sandbox_fusion:
            theirs = stack.enter_context(
                sandbox_fusion(arguments.sandbox_fusion, folder / "theirs")
            )
        else:
            print("  --sandbox-fusion names no checkout: verl calls this repository's sandbox")
        try:
            judge = by_verl(load_config(None, _LIMITS), theirs.url, arguments.slots)
        except ScorerMissingError as error:
            print(f"  not measured: {error}")
            return
        side = Side(f"compute_score, {arguments.slots} calls", judge, theirs.cpu, arguments.at_once)
        asyncio.run(_compare_stdio(arguments, ours, side))


async def _compare_stdio(arguments: argparse.Namespace, server: Server, theirs: Side) -> None:
    async with client(server.url) as sandbox:
        judge = by_method(load_config(None, _EXACT), sandbox)
        ours = Side("batch", judge, server.cpu, arguments.at_once)
        for cases in arguments.cases:
            answers = stdio_answers(arguments.answers, cases)
            print(f"  {len(answers)} answers with {cases} cases each")
            await compare(ours, theirs, answers, arguments.pairs)


if __name__ == "__main__":
    main()
