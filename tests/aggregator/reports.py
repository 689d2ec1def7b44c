"""Fixtures of a run to publish, and parsers of its report."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from redis import Redis

from shared.ledger import Ledger
from shared.run_record import make_plan
from shared.schemas import FailedCase, SampleId
from shared.statuses import FinalStatus
from tests.aggregator.runs import judge
from tests.shared.ledgers import enter, problem

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)
_SCRIPT = re.compile(r'<script type="module">(.*?)</script>', re.S)
_STYLE = re.compile(r"<style>(.*?)</style>", re.S)
_EXTRA = json.dumps({"tags": ["dp", "graphs"]})
ANSWER = "Here it is:\n```python\nprint(1 < 2)\n```\n"


def finished(redis: Redis, output: str, run: str = "run-1", **meta: Any) -> Ledger:
    """A run over two data sets that is to be published."""
    problems = [
        problem("p1", difficulty="easy", extra_info=_EXTRA, prompt="a" * 600),
        problem("p2", difficulty="hard"),
        problem("q", "d2", prompt="<b>&\u2028"),
    ]
    plan = make_plan(problems, lambda one: range(2 if one.problem_id == "p1" else 1))
    ledger = Ledger(redis, run)
    facts = {"output": output, "name": "mine", "state": "judged", "started_at": 5.0, "seed": 1}
    enter(ledger, problems, plan, **{**facts, **meta})
    made = {"completion": ANSWER, "output_tokens": 7, "gen_time": 0.5, "finished_at": 8.0}
    case = FailedCase(case_index=0, status="wrong_answer", expected="2\n", actual="1\n")
    for sample in plan.samples():
        right = sample.sample_index == 0
        status = FinalStatus.SUCCESS if right else FinalStatus.WRONG_ANSWER
        found = {"first_failed_case": None if right else case, "judged_at": 9.0}
        judge(ledger, sample, status, made, method="batch", checker="tokens", **found)
    ledger.add_active_seconds(2.0)
    return ledger


def data_of(path: Path) -> Any:
    """What the page's scripts read."""
    (text,) = DATA.findall(path.read_text("utf-8"))
    return json.loads(text)


def rows_of(data: Any) -> dict[SampleId, dict[str, Any]]:
    names = [*data["columns"], "texts"]
    rows = [dict(zip(names, values, strict=True)) for values in data["samples"]]
    return {SampleId(row["dataset"], row["problem_id"], row["sample_index"]): row for row in rows}


def allowed(page: str) -> dict[str, str]:
    """The hashes of the page's script and style, as its policy has to name them."""
    (script,), (style,) = _SCRIPT.findall(page), _STYLE.findall(page)
    return {"script-src": _named(script), "style-src": _named(style)}


def _named(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
