"""The stack of docker-compose.yml as a separate Compose project."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from shared.service.processes import free_port
from tests import waiting
from tests.compose.offline import stand_ins

ROOT = Path(__file__).parents[2]
PROJECT = "plumblinetest"
# Those that start without a profile and keep running.
SERVICES = ("redis", "sandbox", "judge", "aggregator", "generator")
_REDIS_CLI = "/etc/plumbline/redis/cli.sh"  # redis-cli as the operator
_PASSWORD = 'a"b\\c%d@e:f/'  # nothing that a URL, a shell or a configuration file would leave alone

# Each look may be a command of Docker.
until = partial(waiting.until, every=0.5)


def docker(*arguments: str, check: bool = True) -> str:
    """Standard output of ``docker``; an error shows all it printed."""
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert not check or done.returncode == 0, f"docker {arguments}: {done.stderr}{done.stdout}"
    return done.stdout.strip()


@contextmanager
def paused(container: str) -> Iterator[None]:
    """Freeze the processes of a container.

    On a busy machine the first attempts may fail: the kernel had not stopped each of them in time.
    """
    until(f"{container} is paused", lambda: _is_paused(container))
    try:
        yield
    finally:
        docker("unpause", container)


def _is_paused(container: str) -> bool:
    docker("pause", container, check=False)
    return docker("inspect", "-f", "{{.State.Paused}}", container) == "true"


def compose_command() -> list[str] | None:
    """The plugin or the program, whichever is there."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        asked = [*command, "version"]
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return command
    return None


def settings(empty: Path) -> dict[str, str]:
    """The lines of a .env; ``empty`` is a folder without data.

    The generator is slow enough for faults to come in mid-run. Only two passwords are set; the
    others are generated.
    """
    return {
        "REDIS_PASSWORD": _PASSWORD,
        "REDIS_JUDGE_PASSWORD": f"judge{_PASSWORD}",
        "AGGREGATOR_TOKEN": "page/&?=#token",
        "REWARD_TOKEN": "reward/&?token",
        "SANDBOX_TOKEN": "sandbox'token\\",
        "OPENAI_API_KEY": "key-of-the-generator",
        "REDIS_MAXMEMORY": "256mb",
        "AGGREGATOR_PORT": str(free_port()),
        "REWARD_PORT": str(free_port()),
        "REWARD_ALLOW_EVAL": "true",
        "REWARD_CONFIG": "configs/demo.yaml",
        "REPLAY_LATENCY": "0.5",
        "PLUMBLINE_DATA": str(empty),
        "PLUMBLINE_MANIFESTS": str(empty),
        "PLUMBLINE_WAIT_SECONDS": "60",
        "PLUMBLINE_REVISION": "0123456789abcdef",
    }


class Stack:
    """Commands of Compose on one project; ``settings`` are the lines of its .env.

    ``files`` are further Compose files, relative to the repository.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        project: str = PROJECT,
        files: Sequence[str] = (),
    ) -> None:
        command = compose_command()
        assert command is not None
        self.settings = dict(settings)
        self.project = project
        env_file = folder / f"{project}.env"
        env_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        replaced = folder / f"{project}.stand-ins.yml"
        stand_ins.write(replaced, "docker-compose.yml", *files)
        further = [part for file in files for part in ("-f", str(ROOT / file))]
        self._command = [
            *command, "-p", project, "--project-directory", str(ROOT),
            "-f", str(ROOT / "docker-compose.yml"), *further, "-f", str(replaced),
            "--env-file", str(env_file),
        ]  # fmt: skip

    def start(
        self, *arguments: str, profile: str = "", output: int | IO[str] = subprocess.PIPE
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self._command, *(["--profile", profile] if profile else []), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": os.environ["PATH"], **_docker_variables(), **self.settings},
        )

    def do(self, *arguments: str, profile: str = "", expect: int | None = 0) -> str:
        """What a command printed, stderr included."""
        return self._ended(self.start(*arguments, profile=profile), arguments, expect)

    def do_in_mid_run(self, *arguments: str) -> None:
        """A command that begins while answers come, and finds the run unfinished when it ends.

        A busy machine may take longer for the command than the rest of the run would, so the
        generator stands still after the command's first second.
        """
        process = self.start(*arguments)
        time.sleep(1)
        (generator,) = self.containers("generator")
        with paused(generator):
            self._ended(process, arguments, 0)

    @staticmethod
    def _ended(
        process: "subprocess.Popen[str]", arguments: Sequence[str], expect: int | None
    ) -> str:
        printed, _ = process.communicate(timeout=600)
        if expect is not None:
            assert process.returncode == expect, f"{arguments}: {printed}"
        else:
            assert process.returncode != 0, f"{arguments} went well: {printed}"
        return printed

    def containers(self, service: str, *, oneoff: bool = False) -> list[str]:
        """Ids of a service's containers that run; Compose itself takes a second to tell them.

        ``oneoff`` are those of ``run``.
        """
        labels = {"project": self.project, "service": service, "oneoff": str(oneoff)}
        filters = [f"--filter=label=com.docker.compose.{k}={v}" for k, v in labels.items()]
        return docker("ps", "-q", "--no-trunc", *filters).split()

    def healthy(self, services: Sequence[str] = SERVICES) -> bool:
        """Whether each service has containers, and all of them are healthy."""
        containers = [self.containers(name) for name in services]
        return all(containers) and all(
            health(container)["Status"] == "healthy" for ones in containers for container in ones
        )

    def remove(self) -> None:
        """Remove all containers and volumes, whatever state they are in."""
        for container in docker("ps", "-aq", "--filter", f"name={self.project}").split():
            docker("rm", "-f", container, check=False)
        self.do("down", "--volumes", "--remove-orphans", "--timeout", "5")

    def plumb(self, *arguments: str) -> "subprocess.Popen[str]":
        return self.start("run", "--rm", "-T", "runner", *arguments)

    def redis(self, command: str) -> str:
        line = f"sh {_REDIS_CLI} {command}"
        return docker("exec", self.containers("redis")[0], "sh", "-c", line)

    def verdicts(self) -> int:
        """How many verdicts the ledger has, of all runs."""
        lengths = "--scan --pattern 'plumbline:run:*:verdicts' | sed 's/^/hlen /'"
        return sum(map(int, self.redis(f"{lengths} | sh {_REDIS_CLI}").split()))

    def artifacts(self, output: str, into: Path) -> Path:
        """A copy of a run's folder."""
        docker("cp", f"{self.containers('aggregator')[0]}:/outputs/{output}", str(into / output))
        return into / output


def health(container: str) -> dict[str, Any]:
    """The state of a container's health, with what its last checks printed."""
    state = json.loads(docker("inspect", "-f", "{{json .State}}", container))
    return dict(state.get("Health") or {"Status": state["Status"], "Log": []})


def judged(folder: Path) -> dict[tuple[str, str, int], tuple[object, ...]]:
    """What a run's verdicts say of the answers, without times and names of machines."""
    lines = (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    return {_sample(verdict): _decided(verdict) for verdict in map(json.loads, lines)}


def _sample(verdict: Mapping[str, Any]) -> tuple[str, str, int]:
    sample: Mapping[str, Any] = verdict.get("sample", verdict)
    return sample["dataset"], sample["problem_id"], sample["sample_index"]


def _decided(verdict: Mapping[str, Any]) -> tuple[object, ...]:
    names: Sequence[str] = (
        "final_status", "accepted", "pass_ratio", "cases_passed", "cases_total", "case_codes",
    )  # fmt: skip
    return tuple(str(verdict.get(name)) for name in names)


def _docker_variables() -> dict[str, str]:
    return {name: os.environ[name] for name in ("DOCKER_HOST", "HOME") if name in os.environ}
