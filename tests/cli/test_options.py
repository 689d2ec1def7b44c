import io
from pathlib import Path

import pytest
from rich.console import Console

from services.cli.display import ProgressDisplay, print_summary
from services.cli.options import with_method
from shared.artifacts import OutputFolder
from shared.config import load_config
from shared.errors import ConfigError
from shared.finished_run import FinishedRun
from shared.plan import make_plan
from shared.run_record import RunRecord
from shared.text import split_urls
from tests.shared.ledgers import problem


@pytest.mark.parametrize(
    "overrides",
    [
        ["judge.method=submit", "judge.language=go"],
        ["judge.method=compute_score", "judge.verl_native=true"],
    ],
)
def test_a_method_that_does_not_go_with_the_rest_is_refused(overrides: list[str]) -> None:
    with pytest.raises(ConfigError, match="method batch: judge") as caught:
        with_method(load_config(None, overrides), "batch", False, False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["[bold]x", "[/x]", "\x1b[31mred"])
def test_names_are_printed_as_they_are(name: str, tmp_path: Path) -> None:
    """Square brackets are no markup, control characters no commands."""
    out = io.StringIO()
    console = Console(file=out, width=200)
    record = RunRecord(run="r", name=name, output=f"outputs/{name}")
    print_summary(console, FinishedRun(OutputFolder(str(tmp_path)), record, {name: {}}))
    with ProgressDisplay(console) as progress:
        progress.planned(make_plan([problem(dataset=name)], lambda _problem: range(1)))
    shown = name.replace("\x1b", "\ufffd")
    assert out.getvalue().count(shown) >= 3
    assert "\x1b" not in out.getvalue()


def test_urls_are_split_without_empty_ones() -> None:
    assert split_urls(" http://a , ,http://b,") == ["http://a", "http://b"]
    assert split_urls("") == []
