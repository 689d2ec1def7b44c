"""Health checks of a service: running, waiting for Redis, unable to start."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from redis import Redis
from structlog.testing import capture_logs

from shared.ledger import wait_for_redis
from shared.service.health import HealthServer, Readiness
from shared.service.processes import free_port
from tests.conftest import RedisServer
from tests.waiting import until


def asked(port: int, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_alive_and_not_ready_for_a_reason() -> None:
    with HealthServer("127.0.0.1", 0, Readiness(lambda: "no luck")) as server:
        assert asked(server.port, "/readyz") == (503, {"ready": False, "reason": "no luck"})
        assert asked(server.port, "/healthz") == (200, {"status": "alive"})
        assert asked(server.port, "/metrics")[0] == 404


def test_a_refusal_is_one_line_and_the_errors_code(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.jsonl")
    environment = {
        "PATH": os.environ["PATH"],
        "PORT": str(free_port()),
        "PLUMBLINE_GENERATOR_REPLAY_COMPLETIONS": missing,
    }
    command = [sys.executable, "-m", "services.generator"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"generator: {missing}")
    assert done.stderr.count("\n") == 1


def test_a_health_check_says_why_a_service_is_not_ready() -> None:
    with HealthServer("127.0.0.1", 0, Readiness(lambda: "no luck")) as server:
        environment = {"PATH": os.environ["PATH"], "PORT": str(server.port)}
        check = [sys.executable, "-m", "shared.healthcheck"]
        done = subprocess.run(check, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["reason"] == "no luck"


def test_redis_is_waited_for(tmp_path: Path) -> None:
    """It refuses the password at first; the log says so."""
    server = RedisServer(tmp_path)  # not everybody's: it would know passwords from now on
    redis = Redis.from_url(server.url)
    redis.config_set("requirepass", "secret")
    with capture_logs() as logs, ThreadPoolExecutor() as threads:
        waiting = threads.submit(wait_for_redis, server.url, poll=0.05)
        until("the reason is logged", lambda: bool(logs))
        time.sleep(0.3)
        redis.config_set("requirepass", "")
        assert waiting.result(60).ping()
    [line] = logs
    assert "password" in line["reason"]
    server.stop()


def test_readiness_is_what_the_first_check_says() -> None:
    said = iter([None, "away", None])
    readiness = Readiness(lambda: None, lambda: next(said), lambda: "late")
    assert [readiness.failure() for _ in range(3)] == ["late", "away", "late"]


def test_a_health_check_without_anybody_there() -> None:
    environment = {"PATH": os.environ["PATH"], "PORT": str(free_port()), "HOST": "0.0.0.0"}
    check = [sys.executable, "-m", "shared.healthcheck"]
    done = subprocess.run(check, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"port {environment['PORT']} does not answer" in done.stdout
