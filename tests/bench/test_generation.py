"""Helpers of `bench-generate`; the servers themselves need engines."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.config import Config, load_config
from tests.bench.generation.client import Question, ask
from tests.bench.generation.flags import default_flags, matched_flags
from tests.bench.generation.questions import prompts, questions

# A daemon outlives its parent and leaves its process group.
LEAVE_A_DAEMON = """
import sys
from pathlib import Path
from tests.bench.generation.processes import Launch, TimeUpError, running, supervised, wait_for

folder = Path(sys.argv[1])
shell = f"(setsid sleep 600 & echo $! > {folder}/daemon); touch {folder}/up; exec sleep 600"
launch = Launch("sh", ["sh", "-c", shell], {"PATH": "/usr/bin:/bin"}, folder / "log")
try:
    with supervised(26.0), running(launch) as process:
        wait_for((folder / "up").exists, process)
        wait_for(lambda: False, process)
except TimeUpError:
    print("time is up")
"""


def _config(*more: str) -> Config:
    return load_config(None, ["actor_rollout_ref.model.path=/models/m", *more])


def _value(flags: list[str], name: str) -> str:
    return flags[flags.index(name) + 1]


def test_after_its_time_nothing_that_was_started_is_left(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVE_A_DAEMON, str(tmp_path)], capture_output=True, text=True
    )

    assert done.stdout == "time is up\n"
    assert not _alive(int((tmp_path / "daemon").read_text()))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_answers_are_counted_in_the_order_of_the_questions() -> None:
    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["max_tokens"] == 2:
            raise web.HTTPServiceUnavailable(text="busy")
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": asked["max_tokens"]}
        choice = {"text": "x", "finish_reason": "length" if asked["max_tokens"] < 5 else "abort"}
        return web.json_response({"choices": [choice], "usage": usage})

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("/v1/completions"))
        asked = [Question(url, {"prompt": [1] * 3, "max_tokens": count}) for count in (1, 2, 4, 5)]
        load = await asyncio.to_thread(ask, asked)

    assert [answer.status for answer in load.answers] == [200, 503, 200, 200]
    assert [answer.completion_tokens for answer in load.answers] == [1, 0, 4, 5]
    assert [answer.trouble for answer in load.failed] == [
        "HTTP 503: b'busy'",
        "finish_reason abort",
    ]


async def test_a_server_that_is_away_is_trouble_of_each_request() -> None:
    load = await asyncio.to_thread(ask, questions(["http://127.0.0.1:9"], "m", [[1], [2]], 1))

    assert [answer.status for answer in load.failed] == [0, 0]


def test_prompts_of_one_seed_are_the_same_and_of_another_have_no_beginning_in_common() -> None:
    first, again, other = (prompts(50, 40, 1000, seed) for seed in (1, 1, 2))

    assert first == again
    assert all(30 <= len(prompt) <= 50 for prompt in first)
    assert not {tuple(one[:5]) for one in first} & {tuple(one[:5]) for one in other}


def test_vllm_gets_what_verl_would_give_it() -> None:
    flags = matched_flags(
        _config(
            "trainer.n_gpus_per_node=2",
            "actor_rollout_ref.rollout.max_num_seqs=17",
            "actor_rollout_ref.rollout.enable_prefix_caching=false",
            "actor_rollout_ref.rollout.engine_kwargs.vllm.block_size=32",
        )
    )

    assert _value(flags, "--max-num-seqs") == "17"
    assert _value(flags, "--block-size") == "32"
    assert _value(flags, "--data-parallel-size") == "2"
    assert _value(flags, "--distributed-executor-backend") == "mp"
    assert _value(flags, "--compilation-config") == '{"cudagraph_mode": "FULL_AND_PIECEWISE"}'
    assert {"--no-enable-prefix-caching", "--no-enable-sleep-mode"} < set(flags)


def test_with_its_own_defaults_it_chooses_its_executor() -> None:
    assert "--distributed-executor-backend" not in default_flags(_config())
