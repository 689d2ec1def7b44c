"""Artifacts are written where the operator allows it, whatever is stored in Redis."""

from pathlib import Path

import pytest
from redis import Redis

from services.aggregator.__main__ import publish_due
from services.aggregator.ingest import Ingester
from services.aggregator.settings import AggregatorSettings, OutputRoots
from shared.errors import OutputError
from shared.run_record import RunState
from tests.aggregator.reports import finished

INSIDE = [
    *("/outputs", "/outputs/", "/outputs/a", "file:///outputs/a", "/outputs/../outputs/a"),
    *("s3://bucket/runs", "s3://bucket/runs/a/b", "local:///outputs/x", "/outputs/a..b"),
]
OUTSIDE = [
    *("/", "/etc", "/outputs2", "/outputs/../etc", "file:///etc", "file:/etc", "local:/etc"),
    *("etc", "~/x", "~root/x", "s3://bucket", "s3://bucket/runs2", "s3://bucket/runs/../other"),
    *("s3://other/runs", "s3://me:key@bucket/runs", "s3://bucket/runs?x=1"),
    *("s3://bucket/runs#x", "s3://bucket/runs/%2e%2e/x", "S3://bucket/runs"),
    *("simplecache::s3://bucket/runs", "s3://bucket/runs::file:///etc", "FILE:///outputs"),
    *("ssh://host/outputs", "memory://outputs", "https://host/s3://bucket/runs"),
    *("github://org:repo@/outputs", "/outputs/\0", ""),
]


def test_folders_inside_and_outside_the_roots() -> None:
    roots = OutputRoots(["/outputs", "s3://bucket/runs/"])

    def is_inside(url: str) -> bool:
        try:
            roots.check(url)
        except OutputError:
            return False
        return True

    assert [url for url in INSIDE if not is_inside(url)] == []
    assert [url for url in OUTSIDE if is_inside(url)] == []


def test_links_are_followed(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    root.mkdir()
    (root / "out").symlink_to("/etc")
    (tmp_path / "link").symlink_to(root)
    OutputRoots([str(root)]).check(f"{tmp_path}/link/run")
    OutputRoots([str(tmp_path / "link")]).check(f"{root}/run")
    with pytest.raises(OutputError):
        OutputRoots([str(root)]).check(f"{root}/out/run")


def test_without_roots_a_run_may_name_any_folder() -> None:
    AggregatorSettings().roots.check("/anywhere")
    assert AggregatorSettings(output_roots=" /a, s3://b ").roots.check("s3://b/x") is None


def test_nothing_is_written_outside(redis: Redis, tmp_path: Path) -> None:
    roots = OutputRoots([str(tmp_path / "allowed")])
    bad = finished(redis, str(tmp_path / "elsewhere"), run="bad")
    good = finished(redis, str(tmp_path / "allowed" / "good"), run="good")
    publish_due(Ingester(redis), roots)
    assert not (tmp_path / "elsewhere").exists()
    assert bad.state() is RunState.FAILED
    assert "outside PLUMBLINE_OUTPUT_ROOTS" in (bad.meta().publish_error or "")
    assert good.state() is RunState.COMPLETE
    assert (tmp_path / "allowed" / "good" / "run.json").exists()
