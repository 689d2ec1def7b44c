"""Planted secrets: nothing that is written, served, logged or passed as an argument has them."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest

from services.aggregator.routes import ROUTES
from services.cli.embedded.environment import OWN_SECRETS, base_environment
from services.data.records import write_dataset
from tests.aggregator.wandb_server import Fault, wandb_server
from tests.cli.commands import Outcome
from tests.cli.fork_server import ROOT, run_forked
from tests.conftest import RedisServer
from tests.e2e import plumb
from tests.e2e.planted import Files, Gate, Login, Model, Proxy, Search
from tests.runner.generators import refused_url
from tests.sandboxes import own_sandbox
from tests.shared.ledgers import problem

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

GENERATOR = Login("gen-usr-Q1", "gEn/p@ss#w rd?1")
SANDBOX = Login("sbx-usr-Q2", "sBx:p/ss@w'rd%2")
DATA = Login("dat-usr-Q3", "dAtap/ss@wrd-3")
DATA_TOKEN = "dAta-tOken-4Q"
REDIS = Login("default", 'rEd/s p@ss#w"rd-5')
KEYS = {
    "OPENAI_API_KEY": "sk-oPenai-6QQQQQQQQ",
    "WANDB_API_KEY": "wAndb7" + "a1b2c3d4" * 5,
    "HF_TOKEN": "hf_hUgging8QQQQQQQ",
    "AWS_SECRET_ACCESS_KEY": "aWs/sEcret+9QQQQ",
    "PLUMBLINE_TOKEN": "pLumb-tOken-10Q",
    "PLUMBLINE_SANDBOX_TOKEN": "pLumb-sAndbox-11Q",
    "PLUMBLINE_AGGREGATOR_TOKEN": "pLumb-aGgregator-12Q",
    "PLUMBLINE_GENERATOR_API_KEY": "pLumb-gEnerator-13Q",
}
IN_FILE = "iN-a-fIle-14QQ"
TOKEN = {"Authorization": f"Bearer {KEYS['PLUMBLINE_AGGREGATOR_TOKEN']}"}
SECRETS = (
    *(secret for login in (GENERATOR, SANDBOX, DATA) for secret in (login.user, login.password)),
    *(DATA_TOKEN, REDIS.password, IN_FILE, *KEYS.values()),
)


@dataclass
class Desk:
    """A folder to work in, an environment with secrets, and the search for them."""

    folder: Path
    environment: dict[str, str]
    search: Search

    def plumb(self, *arguments: str, **environment: str) -> Outcome:
        done = Outcome(*run_forked(arguments, self.folder, self.environment | environment, 180))
        self.search.look(f"plumb {arguments[0]}", (done.stdout + done.stderr).encode())
        return done


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """What is written and said until the end of the test has no secret."""
    folder, temporary, secret = (tmp_path / name for name in ("desk", "tmp", "secret"))
    for path in (folder, temporary):
        path.mkdir()
    secret.write_text(IN_FILE + "\n")
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    settings = {
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(temporary),
        "LOG_LEVEL": "DEBUG",
        "PLUMBLINE_REWARD_TOKEN_FILE": str(secret),
    }
    search = Search(SECRETS)
    yield Desk(folder, {**kept, **KEYS, **settings}, search)
    search.look_below(folder)
    search.look_below(temporary)
    assert search.found == set()


def test_a_run_leaves_no_secret(desk: Desk, tmp_path: Path) -> None:
    write_dataset(str(tmp_path / "data.parquet"), [problem("p1"), problem("p2")])
    models, boxes, files = Gate(GENERATOR, echo=1), Gate(SANDBOX, echo=1), Gate(DATA)
    (tmp_path / "sandbox").mkdir()
    refusal = Fault("/graphql", HTTPStatus.UNAUTHORIZED, f"wrong key {KEYS['WANDB_API_KEY']}")
    with (
        wandb_server(refusal) as wandb,
        own_sandbox(tmp_path / "sandbox") as sandbox,
        boxes.serving(Proxy(sandbox)) as boxed,
        models.serving(Model(models.release)) as generator,
        files.serving(Files(tmp_path / "data.parquet")) as served,
    ):
        config = {
            # One of them as a user types it, the others quoted.
            "generation": {"base_urls": [GENERATOR.at(generator, quoted=False)]},
            "data": {"eval_files": [f"{DATA.at(served)}/d1.parquet?token={DATA_TOKEN}"]},
            "wandb": {"enabled": True},
        }
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        arguments = ["run", "--embedded", "--output", "out", "--config", "../config.yaml"]
        with ThreadPoolExecutor() as threads:
            watch = threads.submit(_watch, desk, models.release)
            services = {"SANDBOX_URLS": SANDBOX.at(boxed), "WANDB_BASE_URL": wandb.url}
            done = desk.plumb(*arguments, "wandb.enabled=false", **services)
            watch.result()
        assert done.code == 0, done.stderr
        # Another password of the same server, typed in another way: the same run.
        again = desk.plumb(*arguments, **services)
        assert again.code == 0, again.stderr
    assert models.refused == boxes.refused == 0
    out = desk.folder / "out"
    generations = plumb.read_jsonl(out / "generations.jsonl")
    assert {generation["replica"] for generation in generations} == {
        generator.removeprefix("http://")
    }
    run = json.loads((out / "run.json").read_text())
    assert run["sessions"] == 2
    assert "wrong key ***" in run["wandb"]["online_error"]
    assert run["config"]["generation"]["base_urls"] == [generator.replace("://", "://***@")]
    assert [entry["sandbox"] for entry in run["canaries"]["sandboxes"]] == [boxed]
    for command in (["show", "out"], ["report", "out"], ["compare", "out", "out"], ["runs", "."]):
        assert "Traceback" not in desk.plumb(*command).stderr


def _watch(desk: Desk, release: threading.Event) -> None:
    """Ask all services for all that they serve while the run waits, then let it go on."""
    state = desk.folder / "out" / ".plumbline"
    try:
        plumb.wait_for((state / "aggregator.port").exists, "the aggregator")
        base = f"http://127.0.0.1:{(state / 'aggregator.port').read_text().strip()}"
        plumb.wait_for(lambda: b'"verdicts":' in _answer(desk, f"{base}/api/runs", TOKEN), "runs")
        plumb.wait_for(lambda: _verdicts(desk, base) > 0, "a verdict")
        (run,) = json.loads(desk.search.get(f"{base}/api/runs", TOKEN))
        for route in ROUTES:
            path = route.path.replace("{run}", run).replace("{dataset}", "d1")
            path = path.replace("{problem_id}", "p1").replace("{sample_index}", "0")
            if "event" not in path:
                desk.search.get(f"{base}{path}", TOKEN)
        desk.search.get(f"{base}/", TOKEN)
        for port_file in state.glob("*.port"):
            address = f"http://127.0.0.1:{port_file.read_text().strip()}"
            for path in ("/readyz", "/metrics", "/healthz", "/nothing"):
                desk.search.get(f"{address}{path}", TOKEN)
        for child in plumb.children(os.getpid()):
            plumb.with_process(child.pid, lambda process: _look_at(desk, process))
    finally:
        release.set()


def _answer(desk: Desk, url: str, headers: dict[str, str]) -> bytes:
    try:
        return desk.search.get(url, headers)
    except OSError:
        return b""


def _verdicts(desk: Desk, base: str) -> int:
    runs = json.loads(_answer(desk, f"{base}/api/runs", TOKEN) or "{}")
    return sum(run["verdicts"] for run in runs.values())


def _look_at(desk: Desk, process: psutil.Process) -> None:
    desk.search.look(f"arguments of {process.name()}", "\0".join(process.cmdline()).encode())


def test_failures_show_no_secret(desk: Desk, tmp_path: Path, redis_server: RedisServer) -> None:
    write_dataset(str(desk.folder / "data.parquet"), [problem("p1")])
    (desk.folder / "completions.jsonl").write_text('{"problem_id": "p1", "completion": "x"}\n')
    data = ["--data", "data.parquet"]
    judge = ["judge", "--output", "out", *data, "--completions", "completions.jsonl"]
    away = refused_url()
    redis = f"redis://{redis_server.url.rpartition('@')[2]}"
    unchecked = {"PLUMBLINE_SANDBOX_CHECK": "none"}
    wrong = Gate(Login("other", "other"))
    with wrong.serving(Model(wrong.release)) as refusing:
        run = ["run", "--output", "out", *data, "--base-url"]
        commands: list[tuple[list[str], dict[str, str]]] = [
            ([*run, GENERATOR.at(refusing)], {}),
            ([*run, GENERATOR.at(away, quoted=False)], {}),
            ([*run, refusing], {}),  # with the key of the environment
            ([*judge, f"sandbox.url={SANDBOX.at(refusing)}/run_code"], {}),
            ([*judge, f"sandbox.url=[{SANDBOX.at(away, quoted=False)}"], {}),
            (judge, {"SANDBOX_URLS": SANDBOX.at(away)}),
            ([*judge, "--data", f"{DATA.at(refusing)}/x.parquet?token={DATA_TOKEN}"], {}),
            (judge, {**unchecked, "REDIS_URL": REDIS.at(redis)}),
            (judge, {**unchecked, "REDIS_URL": REDIS.at(redis, quoted=False)}),
            (judge, {**unchecked, "REDIS_URL": redis, "REDIS_PASSWORD": REDIS.password}),
            (["doctor", f"sandbox.url={SANDBOX.at(refusing)}"], {"REDIS_URL": REDIS.at(redis)}),
        ]
        with ThreadPoolExecutor(2) as threads:
            begun = [
                threads.submit(desk.plumb, *arguments, **environment)
                for arguments, environment in commands
            ]
    for failed in (command.result() for command in begun):
        assert failed.code in (1, 2), failed
        assert "Traceback" not in failed.stderr


def test_a_service_has_only_its_own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PLUMBLINE_REWARD_TOKEN_FILE", "/run/secrets/reward")
    secrets = {
        service: {name for name in base_environment(*own) if name in KEYS or "REWARD" in name}
        for service, own in OWN_SECRETS.items()
    }
    storage = {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN"}
    assert secrets == {
        "sandbox": {"PLUMBLINE_SANDBOX_TOKEN"},
        "judge": {"PLUMBLINE_SANDBOX_TOKEN"},
        "generator": {"PLUMBLINE_GENERATOR_API_KEY", *storage},
        "reward": {"PLUMBLINE_REWARD_TOKEN_FILE", "PLUMBLINE_SANDBOX_TOKEN", *storage},
    }


@pytest.mark.parametrize("service", ["judge", "aggregator"])
def test_a_service_that_cannot_work_shows_no_secret(
    desk: Desk, redis_server: RedisServer, service: str
) -> None:
    redis = f"redis://{redis_server.url.rpartition('@')[2]}"
    port_file = desk.folder / "port"
    log = desk.folder / "log"
    started = time.monotonic()
    free = refused_url().rpartition(":")[2]
    settings = {
        "REDIS_URL": redis,
        "REDIS_PASSWORD": REDIS.password,
        "PORT": free,
        "SANDBOX_URLS": SANDBOX.at(refused_url()),
        "PLUMBLINE_PORT_FILE": str(port_file),
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", f"services.{service}"],
            env={**desk.environment, **settings}, stdout=out, stderr=out, cwd=desk.folder,
        )  # fmt: skip
    try:
        answer = b""
        while b"password" not in answer:
            assert time.monotonic() - started < 60, answer
            answer = _answer(desk, f"http://127.0.0.1:{free}/readyz", TOKEN)
            time.sleep(0.05)
        assert b'"ready": false' in answer
    finally:
        process.kill()
        process.wait()


def test_a_traceback_shows_no_secret(desk: Desk) -> None:
    address = GENERATOR.at("http://host:1", quoted=False)
    program = (
        "from shared.service.logs import configure_logging, get_logger\n"
        "import logging, os\n"
        "configure_logging('test', 'DEBUG')\n"
        f"address, key = {address!r}, os.environ['OPENAI_API_KEY']\n"
        "from shared.address import Address\n"
        "Address.parse(address)\n"
        "get_logger('a').warning('called', address=address, of=[address], key=key)\n"
        "logging.getLogger('b').debug('Authorization: Bearer %s %r', key, address)\n"
        "try:\n    raise ValueError(address, key)\n"
        "except ValueError:\n    get_logger('a').exception('failed')\n"
        "raise RuntimeError(f'{address} {key}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=desk.environment, capture_output=True, timeout=60
    )
    assert b"RuntimeError" in done.stderr
    assert b"ValueError" in done.stdout
    text = done.stderr + done.stdout
    # Python shows the program's lines, but not those of -c.
    desk.search.look("traceback", text)
