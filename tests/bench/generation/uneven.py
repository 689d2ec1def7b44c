"""Unevenly distributed work: verl's own generation script against our generator.

`main_generation_server` has one `response_length` for all prompts, so what can be uneven is what
they cost to read. It gives each replica a contiguous part of the prompts before it begins; sorted
by length, as those of several data sets in a row may be, one replica gets all of the long ones.
Both sides are given the same texts in the same order, all at once, and no pass before; only the
generation itself is timed, not the starts.
"""

import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.generator.backends.verl.cleanup import TAG, sweep
from services.generator.backends.verl.engine_config import overrides
from shared.config import Config
from tests.bench.generation.bench import Bench
from tests.bench.generation.client import Load, Question, ask
from tests.bench.generation.processes import Launch, ServerError, running
from tests.bench.generation.servers import OURS, environment, serving

_NEW_TOKENS = 16
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def measure(bench: Bench, replicas: int, sides: Sequence[str]) -> None:
    count = bench.size.prompts * replicas
    texts = _texts(bench, count)
    config = bench.config(
        replicas,
        f"actor_rollout_ref.rollout.prompt_length={bench.size.long_tokens + 200}",
        f"actor_rollout_ref.rollout.response_length={_NEW_TOKENS}",
    )
    seconds: dict[str, float] = {}
    try:
        for side in sides:
            run = _ours if side == OURS else _verl
            found = run(bench, config, texts)
            bench.report.line("side", side=side, replicas=replicas, prompts=count, **found)
            seconds[side] = found["generate"]
            print(f"  {side}: {found}")
    finally:
        _summarize(bench, seconds, replicas, count)


def _summarize(bench: Bench, seconds: Mapping[str, float], replicas: int, count: int) -> None:
    rows = [[side, count, replicas, spent] for side, spent in seconds.items()]
    bench.report.table("Uneven prompts", ["side", "prompts", "replicas", "seconds"], rows)
    if len(seconds) == 2:
        ratio = next(spent for side, spent in seconds.items() if side != OURS) / seconds[OURS]
        bench.report.line("summary", replicas=replicas, theirs_over_ours=ratio)
        print(f"  theirs / ours: {ratio:.2f}")


def _texts(bench: Bench, count: int) -> list[str]:
    """Half of them long, half of them short, the long ones first."""
    from tokenizers import Tokenizer  # comes with the engine

    tokenizer = Tokenizer.from_file(str(Path(bench.model) / "tokenizer.json"))
    chance = random.Random(0)
    long, short = bench.size.long_tokens, bench.size.prompt_tokens
    places = range(10 * count)
    words = [
        "".join(chance.choices(_LETTERS, k=chance.randint(2, 9))) for _ in range(len(places) + long)
    ]
    ids = tokenizer.encode(" ".join(words), add_special_tokens=False).ids
    # Each begins at a place of its own, so that none is a prefix that the engine has in its cache.
    begins = enumerate(chance.sample(places, count))
    return [
        str(tokenizer.decode(ids[at : at + (long if number < count // 2 else short)]))
        for number, at in begins
    ]


def _messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# Our generator, and a client that sends everything at once


def _ours(bench: Bench, config: Config, texts: Sequence[str]) -> dict[str, float]:
    with serving(OURS, config, bench.folder / "uneven-ours") as server:
        asked = {"model": server.model, "temperature": 0.0, "top_p": 1.0, "max_tokens": _NEW_TOKENS}
        url = f"{server.url}/v1/chat/completions"
        load = ask([Question(url, {**asked, "messages": _messages(text)}) for text in texts])
        return {"start_server": server.start_seconds, "generate": load.seconds, **_counted(load)}


def _counted(load: Load) -> dict[str, int]:
    return {
        "answers": len(load.answers) - len(load.failed),
        "prompt_tokens": sum(answer.prompt_tokens for answer in load.answers),
        "completion_tokens": load.tokens,
    }


# verl's script


def _verl(bench: Bench, config: Config, texts: Sequence[str]) -> dict[str, float]:
    folder = bench.folder / "uneven-verl"
    folder.mkdir(parents=True, exist_ok=True)
    times = folder / "times.json"
    _write_prompts(folder / "prompts.parquet", texts)
    given = overrides(config) | {
        "data.train_files": str(folder / "prompts.parquet"),
        "data.prompt_key": "prompt",
        "data.output_path": str(folder / "responses.parquet"),
    }
    command = [sys.executable, "-m", "tests.bench.generation.verl_server", str(times)]
    command += [part for key, value in given.items() for part in _hydra(key, value)]
    tag = f"bench-{os.getpid()}"
    variables = environment(config) | {"HYDRA_FULL_ERROR": "1", TAG: tag}
    if config.generation.verl.cpu_engine:
        gpus = config.trainer.n_gpus_per_node
        resources = {"GPU": gpus, "CPU": 4 * gpus}
        variables["RAY_OVERRIDE_RESOURCES"] = json.dumps(resources)
    with running(Launch("verl", command, variables, folder / "log")) as script:
        if script.process.wait() or not times.exists():
            raise ServerError(f"main_generation_server failed; its log ends:\n{script.end}")
    found: dict[str, Any] = json.loads(times.read_text())
    sweep(tag, found.pop("shared_memory"))
    return found


def _write_prompts(path: Path, texts: Sequence[str]) -> None:
    import pyarrow as pa  # verl's script has it
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"prompt": [_messages(text) for text in texts]}), path)


def _hydra(key: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        return [part for name, one in value.items() for part in _hydra(f"{key}.{name}", one)]
    return [f"++{key}={json.dumps(value)}"]
