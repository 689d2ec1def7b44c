"""Fixture of a training: checkpoints that are measured by one protocol, and runs beside them."""

from typing import Any

from redis import Redis

from shared.config import load_config
from shared.ledger import Ledger
from shared.run_record import RunState
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.aggregator import runs
from tests.page.hostile import TEXTS
from tests.shared.ledgers import problem

DATASETS = ("humaneval", "mbpp_reg")
PER_DATASET = 12
BEGUN = 1_750_000_000.0
DAY = 86_400.0


def begin(
    books: Redis, run: str, output: str, *, name: str, model: str, begun: float, timeout: int = 10
) -> Ledger:
    """A running run that owes all samples."""
    problems = [problem(f"{kind}_{i:02}", kind) for kind in DATASETS for i in range(PER_DATASET)]
    facts = {"name": name, "model": model, "started_at": begun, "output": output}
    config = load_config(None, [f"sandbox.timeout={timeout}"])
    return runs.begin(books, problems, run, config=config, **facts)


def judged(books: Redis, run: str, output: str, right: int, *, begun: float, **of: Any) -> Ledger:
    """A run of which all samples are judged, ``right`` of each data set accepted."""
    ledger = begin(books, run, output, begun=begun, **of)
    answer(ledger, begun, right)
    ledger.set_state(RunState.JUDGED)
    return ledger


def answer(ledger: Ledger, begun: float, right: int, first: int = 0) -> None:
    """Judge the samples from ``first`` on of each data set, of which ``right`` are accepted."""
    for kind in DATASETS:
        for i in range(first, PER_DATASET):
            status = FinalStatus.SUCCESS if i < right else FinalStatus.WRONG_ANSWER
            if i == PER_DATASET - 1:
                status = FinalStatus.TIMEOUT
            passed = 1.0 if status is FinalStatus.SUCCESS else 0.0
            runs.judge(
                ledger,
                SampleId(kind, f"{kind}_{i:02}"),
                status,
                {"output_tokens": 200, "gen_time": 4.0, "finished_at": begun + 5 + i},
                judged_at=begun + 8 + 3 * i,
                pass_ratio=passed,
                total_judge_time=2.5,
                worker=f"worker-{i % 2}",
            )
    ledger.add_active_seconds(50.0)


def hostile_names() -> tuple[str, str]:
    """Name and model of a run that would run scripts where they are taken for anything but text."""
    return TEXTS["image"] + TEXTS["override"], TEXTS["script_end"]
