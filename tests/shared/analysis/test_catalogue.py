"""What is computed, shown and gated is what the catalogue declares."""

from dataclasses import replace
from pathlib import Path

import pytest

from shared.analysis.catalogue import BY_KEY, METRICS, Group, metrics_of
from shared.analysis.gate_policy import read_policy
from shared.analysis.metrics import SampleResult, certified_metrics, run_throughput, summarize
from shared.certificates import CertifiedTests
from shared.errors import ConfigError
from shared.statuses import FinalStatus

ROOT = Path(__file__).parents[3]
ONE = SampleResult("p", 0, FinalStatus.SUCCESS, True, 1.0, 100, 2.0, 1.0)


def test_every_metric_of_a_summary_is_declared_with_its_interval() -> None:
    tests = CertifiedTests(file="", sha256="", problems=1)
    found = set(summarize([ONE, replace(ONE, sample_index=1)], 1.0)) | {"run_throughput"}
    found |= set(certified_metrics([ONE], tests))
    declared = metrics_of(found)
    keys = {one.key for one in declared} | {f"{one.key}_ci95" for one in declared if one.interval}
    assert found == keys
    assert {one.key for one in METRICS} - {one.key for one in declared} == {"pass_at_k"}


def test_what_is_exposed_to_prometheus_is_documented() -> None:
    documented = (ROOT / "docs/aggregator-api.md").read_text()
    for one in METRICS:
        name = one.prometheus.partition("{")[0]
        assert f"`{name}" in documented, one.key


def test_the_gate_takes_the_declared_costs_and_error_rates(tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    for key in ("cost_per_solved_time", "throughput", "timeout_rate", "accepted_at_1"):
        one = BY_KEY[key]
        for name, group, rule in [
            ("costs", Group.COST, "{max_ratio: 1.1}"),
            ("error_rates", Group.ERROR, "{max_increase: 0.1}"),
        ]:
            file.write_text(f"default: {{{name}: {{{key}: {rule}}}}}")
            if one.group is group and one.higher_is_better is False:
                read_policy(file)
            else:
                with pytest.raises(ConfigError, match="is not one of"):
                    read_policy(file)


def test_throughput_is_over_the_time_in_which_a_set_had_work() -> None:
    spans = [(0.0, 4.0), (2.0, 5.0), (100.0, 102.0), (101.0, 101.5)]
    results = [replace(ONE, problem_id=str(n), work=span) for n, span in enumerate(spans)]
    summary = summarize(results, 1000.0)
    assert (summary["work_seconds"], summary["throughput"]) == (7.0, 4 / 7)
    # A sample may have waited for its verdict while nothing was at work.
    assert summarize([replace(ONE, work=(0.0, 90.0))], 30.0)["throughput"] == 1 / 30
    unjudged = replace(ONE, final_status=FinalStatus.API_ERROR)
    assert run_throughput([results, [ONE], [unjudged]], 10.0) == 0.5
    assert run_throughput([results], 0.0) is None
