"""A run with a generator whose self-check found random weights."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import answering
from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CHECK = {"looks_random": True, "order_preference": 0.49, "tokens": 280}
ALLOWED = "generation.verl.allow_random_weights=true"


_CHOICE = {"message": {"role": "assistant", "content": "woven"}, "finish_reason": "stop"}
GENERATOR = {
    "/v1/models": (200, json.dumps({"data": [{"id": "replay"}]})),
    "/v1/chat/completions": (200, json.dumps({"choices": [_CHOICE]})),
    "/info": (200, json.dumps({"self_check": CHECK})),
}


@pytest.fixture
def url() -> Iterator[str]:
    with answering(GENERATOR) as address:
        yield f"{address}/v1"


def test_it_is_refused_unless_it_is_allowed_and_then_recorded(
    url: str, tmp_path: Path, shared_sandbox: str
) -> None:
    output = tmp_path / "out"
    data = str(plumb.DEMO / "data" / "humaneval.parquet")
    options = ("--base-url", url, "--data", data, "data.limit=1", "generation.backend=openai")
    command = [*plumb.demo_run(output, "judge.canaries=false"), *options]
    refused = plumb.plumb(command, sandbox=shared_sandbox)
    assert refused.returncode == 2, refused.stdout
    assert "looks randomly initialized" in refused.stderr
    assert ALLOWED in refused.stderr
    assert not (output / "run.json").exists()
    allowed = plumb.plumb([*command, ALLOWED], sandbox=shared_sandbox)
    assert allowed.returncode == 0, allowed.stderr
    assert "warning: the model looks randomly initialized" in allowed.stdout + allowed.stderr
    run = json.loads((output / "run.json").read_text())
    assert run["generator"]["self_check"] == CHECK
