"""The server's responses equal recorded responses of SandboxFusion."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from services.sandbox.app import ROUTES
from tests.sandbox.conftest import Sandbox
from tests.sandbox.differences import DIFFERENCES, REWRITTEN, STATUS

ROOT = Path(__file__).parents[2]
RECORDED = ROOT.parent / "shared/sandboxfusion/cases"
FILES = ("run_code.jsonl", "submit.jsonl", "other.jsonl")
TABLE = ROOT / "services/sandbox/DIFFERENCES.md"
STATUS_ONLY = {"error-text", "tiny-memory"}  # the statuses must be the original's all the same
MAY_BE_EQUAL = {"tiny-memory"}  # on some machines

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not RECORDED.exists(), reason=f"no recorded cases at {RECORDED}"),
]


def _cases() -> list[Any]:
    if not RECORDED.exists():
        return []
    lines = [line for name in FILES for line in (RECORDED / name).read_text().splitlines()]
    return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


@pytest.mark.parametrize("case", _cases())
async def test_recorded_case(sandbox: Sandbox, temp_root: Path, case: dict[str, Any]):
    if _language(case) == "cpp" and shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    method, path = case["endpoint"].split()
    body = case.get("raw_body") or json.dumps(case["request"])
    status, answer = await sandbox.send(method, path, body.encode())
    answer = json.loads(json.dumps(answer).replace(str(temp_root), "/tmp"))
    expected = _normal(_without_inputs(case["response"]))
    same = (status, _normal(answer)) == (case["http_status"], expected)
    served = path in {route.path for route in ROUTES}
    difference = DIFFERENCES.get(case["name"]) if served else "endpoints"
    if difference is None:
        assert _normal(answer) == expected
        assert status == case["http_status"]
        return
    assert difference in MAY_BE_EQUAL or not same, "listed as a difference, but there is none"
    if difference != "endpoints":
        assert status == STATUS.get(difference, case["http_status"])
    if difference in STATUS_ONLY:
        assert answer["status"] == case["response"]["status"]
        assert bool(answer["run_result"]) == bool(case["response"]["run_result"])


def test_every_difference_is_in_the_table():
    names = {line.split("|")[1].strip() for line in TABLE.read_text().splitlines() if "|" in line}
    assert {
        "bounded-errors",
        "endpoints",
        *DIFFERENCES.values(),
        *(one for one, _, _ in REWRITTEN),
    } <= names


def test_every_difference_is_a_recorded_case():
    assert set(DIFFERENCES) <= {case.values[0]["name"] for case in _cases()}
    recorded = "".join(json.dumps(case.values[0]["response"]) for case in _cases())
    assert all(json.dumps(original)[1:-1] in recorded for _, original, _ in REWRITTEN)


def _language(case: dict[str, Any]) -> str | None:
    request = case["request"] or {}
    return request.get("language") or request.get("config", {}).get("language")


def _without_inputs(response: Any) -> Any:
    """Without the inputs that validation errors quote: the difference ``bounded-errors``."""
    details = response.get("detail") if isinstance(response, dict) else None
    if not isinstance(details, list):
        return response
    return {"detail": [{k: v for k, v in detail.items() if k != "input"} for detail in details]}


def _normal(value: Any) -> Any:
    """Without what differs from run to run and machine to machine: times, paths, versions."""
    if isinstance(value, dict):
        return {
            key: _normal(item)
            for key, item in value.items()
            if key not in ("execution_time", "url")
        }
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, str):
        for _, original, ours in REWRITTEN:
            value = value.replace(original, ours)
        value = re.sub(r"/tmp/tmp\w+/tmp\w+\.(py|sh|cpp)", r"<program>.\1", value)
        value = re.sub(r'(?<=\n\nprint\(")\w{20}(?="\)\Z)', "<flag>", value)
        return re.sub(r"^ *[\^~]+\n", "", value, flags=re.MULTILINE)  # Python's marks of the place
    return value
