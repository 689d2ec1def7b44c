"""A run whose Redis lost a part of its data: named, and made good by the named commands."""

from pathlib import Path

import pytest

from tests.e2e import plumb
from tests.redis_files import latest_writes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.nightly
def test_a_damaged_ledger_is_never_a_silent_start_from_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = plumb.demo_run(output, "data.limit=1", "data.lock=null")
    assert plumb.plumb(command).returncode == 0
    expected = plumb.numbers(output)

    file = latest_writes(output)
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 11)
    cut = plumb.plumb(command)
    assert cut.returncode == 0, cut.stderr
    assert plumb.numbers(output) == expected

    content = file.read_bytes()
    place = content.index(b"\n*", len(content) // 2) + 1
    file.write_bytes(content[:place] + b"garbage" + content[place + 7 :])
    refused = plumb.plumb(command)
    assert refused.returncode == 2
    assert "redis-check-aof --fix" in refused.stderr
