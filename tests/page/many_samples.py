"""A run of very many samples, written into Redis as runner and judges do."""

import json
import random
import time
import urllib.request
import zlib

from redis import Redis

from shared.ledger import Ledger
from shared.plan import make_plan
from shared.schemas import Generation, Problem, SampleId, Verdict, sha256
from shared.statuses import FinalStatus
from tests.shared.ledgers import enter

RUN = "bench"
_TESTS = json.dumps({"inputs": ["1\n" * 500] * 20, "outputs": ["2\n"] * 20})


def fill(redis: Redis, samples: int) -> None:
    """Write as the ledger does, many samples at once and without jobs that nobody takes."""
    problems = [_problem(number) for number in range(max(1, samples // 10))]
    plan = make_plan(problems, lambda _problem: range(10))
    ledger = Ledger(redis, RUN)
    enter(ledger, problems, plan)
    base = f"plumbline:run:{RUN}"
    chance = random.Random(0)
    for start in range(0, samples, 200):
        pipe = redis.pipeline(transaction=True)
        for number in range(start, min(start + 200, samples)):
            made, judged = _records(chance, SampleId("d1", f"p{number // 10}", number % 10))
            key = made.sample.key
            pipe.hset(f"{base}:completions", key, zlib.compress(made.model_dump_json().encode(), 1))
            pipe.hset(f"{base}:hashes", key, made.completion_sha256)
            pipe.hset(f"{base}:verdicts", key, judged.model_dump_json())
            fields = {"sample": key, "status": judged.final_status.value}
            pipe.xadd(f"{base}:events", {**fields, "accepted": int(judged.accepted)})
        pipe.execute()


def _problem(number: int) -> Problem:
    return Problem(
        dataset="d1",
        split="test",
        problem_id=f"p{number}",
        prompt="Add two numbers. " * 50,
        data_source="d1",
        ground_truth=_TESTS,
        difficulty="easy",
        sandbox_dataset="",
        sandbox_id="",
        prompt_sha256=sha256("Add two numbers. " * 50),
        extra_info=json.dumps({"tags": ["dp", "graphs"] if number % 3 else ["math"]}),
    )


def _records(chance: random.Random, sample: SampleId) -> tuple[Generation, Verdict]:
    completion = f"answer {chance.random()} " + "x = 1\n" * 300
    names = {
        "dataset": sample.dataset,
        "problem_id": sample.problem_id,
        "sample_index": sample.sample_index,
        "completion_sha256": sha256(completion),
    }
    now = time.time()
    made = Generation(
        **names,
        completion=completion,
        output_tokens=chance.randrange(10, 4000),
        gen_time=chance.expovariate(0.05),
        finished_at=now - 5,
    )
    status = chance.choice(list(FinalStatus)[:-1])
    passed = 20 if status is FinalStatus.SUCCESS else chance.randrange(20)
    judged = Verdict(
        **names,
        final_status=status,
        accepted=passed == 20,
        pass_ratio=passed / 20,
        cases_passed=passed,
        cases_total=20,
        case_codes=[1] * passed + [0] * (20 - passed),
        total_judge_time=chance.expovariate(1),
        method="batch",
        checker="tokens",
        judged_at=now,
    )
    return made, judged


def wait(address: str, verdicts: int) -> None:
    while True:
        with urllib.request.urlopen(f"{address}/api/runs", timeout=30) as answer:
            runs = json.load(answer)
        if runs.get(RUN, {}).get("verdicts", 0) >= verdicts:
            return
        time.sleep(0.2)
