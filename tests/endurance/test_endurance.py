"""The parts of `make endurance` that judge: what grows, and what Redis holds."""

import argparse

import pytest
from redis import Redis

from tests.endurance.__main__ import Run, _kinds
from tests.endurance.processes import Held

pytestmark = pytest.mark.nightly


def test_what_a_process_holds_more_is_found() -> None:
    before = Held(100.0, 10, 4, 2)
    for after, findings in (
        (Held(110.0, 14, 4, 2), 0),
        (Held(140.0, 10, 4, 2), 1),
        (Held(100.0, 60, 60, 3), 3),
    ):
        run = Run(argparse.Namespace(seed=1))
        run._compare("service", before, after)
        assert run.findings == findings


def test_keys_are_counted_by_kind(redis: Redis) -> None:
    redis.mset({f"plumbline:reward:0123456789ab:answer:{name}": 1 for name in ("a/b", "c/d1")})
    redis.mset({"rq:job:0a1b2c3d4e": 1, "rq:job:aaaabbbbcc": 1})
    redis.set("plumbline:reward:0123456789ab:hashes", 1)
    assert _kinds(redis) == {"plumbline:reward": 1, "rq:job": 2}
