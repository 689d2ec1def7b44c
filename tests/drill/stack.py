"""Services of a stack as processes on loopback, each on a port that it keeps, and Prometheus."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from services.cli.embedded.services import ChildProcess, wait_until
from shared.service.processes import free_port
from tests.conftest import RedisServer
from tests.drill.prometheus import Prometheus, compressed
from tests.e2e.plumb import DEMO, REPOSITORY, environment
from tests.waiting import until

CONFIGS = REPOSITORY / "configs" / "prometheus"
RULES = CONFIGS / "rules.yml"
SCRAPED = ("aggregator", "generator", "reward", "judge")


class Service:
    """A process with a port of its own; ``program`` may be another one for a while."""

    def __init__(self, name: str, folder: Path, **settings: str) -> None:
        self.name, self.port = name, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{name}.log"
        address = {"HOST": "127.0.0.1", "PORT": str(self.port), "PYTHONPATH": str(REPOSITORY)}
        self._child = ChildProcess(name, [], self.log, environment() | address | settings)

    def start(self, *program: str) -> None:
        self._child.command = [sys.executable, *(program or ("-m", f"services.{self.name}"))]
        self._child.start()
        wait_until(self._answers, self._child)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/metrics", timeout=2):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def send(self, signum: int) -> None:
        assert self._child.process is not None
        self._child.process.send_signal(signum)

    def stop(self) -> None:
        if self._child.running:
            self.send(signal.SIGCONT)
            self._child.stop(15)

    def again(self, *program: str) -> None:
        self.stop()
        self.start(*program)


class Stack:
    """Redis, all services, and Prometheus with the committed rules, their times a sixtieth."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.redis = RedisServer(folder / "redis")
        self._url = {"REDIS_URL": self.redis.url}
        (folder / "index").mkdir()
        self.sandbox = Service("sandbox", folder)
        sandbox = {"SANDBOX_URLS": self.sandbox.url}
        replay = {
            "PLUMBLINE_GENERATOR_REPLAY_COMPLETIONS": str(DEMO / "completions.jsonl"),
            "PLUMBLINE_GENERATOR_REPLAY_LATENCY": "0.5",
        }
        reward = {
            "PLUMBLINE_REWARD_DATA": str(DEMO / "data"),
            "PLUMBLINE_REWARD_ALLOW_EVAL": "true",
            "PLUMBLINE_REWARD_CONFIG": str(REPOSITORY / "configs/demo.yaml"),
        }
        self.judge = Service("judge", folder, **self._url, **sandbox)
        self.aggregator = Service(
            "aggregator", folder, PLUMBLINE_INDEX_DIR=str(folder / "index"), **self._url
        )
        self.generator = Service("generator", folder, **replay)
        self.reward = Service("reward", folder, **self._url, **reward)
        self.services = {
            service.name: service
            for service in (self.sandbox, self.judge, self.aggregator, self.generator, self.reward)
        }
        self._prometheus: subprocess.Popen[bytes] | None = None
        self._runs = 0

    def start(self) -> Prometheus:
        for service in self.services.values():
            service.start()
        port = free_port()
        jobs = [
            {
                "job_name": name,
                "static_configs": [{"targets": [f"127.0.0.1:{self.services[name].port}"]}],
            }
            for name in SCRAPED
        ]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": jobs,
        }
        (self.folder / "rules.yml").write_text(compressed(RULES.read_text()))
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with (self.folder / "prometheus.log").open("wb") as log:
            self._prometheus = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stderr=log,
            )
        prometheus = Prometheus(str(port))
        until("Prometheus answers", prometheus.answers)
        until("targets are up", lambda: {health for _, health in prometheus.targets()} == {"up"})
        return prometheus

    def stop(self) -> None:
        if self._prometheus is not None:
            self._prometheus.terminate()
            self._prometheus.wait()
        for service in self.services.values():
            service.stop()
        self.redis.stop()

    # Runs

    def environment(self) -> dict[str, str]:
        """Environment of a command beside the services."""
        urls = {"GENERATOR_URLS": self.generator.url, "SANDBOX_URLS": self.sandbox.url}
        return environment() | self._url | urls

    @contextmanager
    def run(self, *overrides: str) -> Iterator[subprocess.Popen[bytes]]:
        """A run that takes half a minute, once it has verdicts; ended with the block."""
        self._runs += 1
        output = self.folder / "outputs" / f"run-{self._runs}"
        before = self.runs().keys()
        command = [sys.executable, "-m", "services.cli", "run", "--config", "configs/demo.yaml"]
        command += ["generation.concurrency=1", f"output.dir={output}", *overrides]
        with (self.folder / f"run-{self._runs}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=self.environment(),
                stdout=log,
                stderr=log,
            )
        try:
            until(
                "3 verdicts",
                lambda: any(n > 2 for run, n in self.runs().items() if run not in before),
            )
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(60)

    def runs(self) -> dict[str, int]:
        """Verdicts of each run."""
        with urllib.request.urlopen(f"{self.aggregator.url}/api/runs", timeout=10) as answer:
            return {name: run["verdicts"] for name, run in json.load(answer).items()}

    def post(self, path: str, body: object) -> int:
        """Status of a request to the reward service."""
        request = urllib.request.Request(
            f"{self.reward.url}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
