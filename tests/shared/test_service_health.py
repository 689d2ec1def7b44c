"""Health checks of a service: running, waiting for Redis, unable to start."""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from redis import Redis

from shared.ledger import wait_for_redis
from shared.service.processes import free_port
from shared.service.server import HealthServer, Readiness
from tests.conftest import RedisServer


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
        assert asked(server.port, "/metrics") == (503, {"error": "no luck"})


def test_a_request_to_a_service_that_waits_is_to_be_sent_again() -> None:
    with HealthServer("127.0.0.1", 0, Readiness(lambda: "no Redis")) as server:
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v1/score", b"{}", {"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=30)
    assert caught.value.code == 503
    assert json.load(caught.value) == {"error": "no Redis"}
    assert float(caught.value.headers["Retry-After"]) > 0


def test_a_health_check_says_why_a_service_is_not_ready() -> None:
    with HealthServer("127.0.0.1", 0, Readiness(lambda: "no luck")) as server:
        environment = {"PATH": os.environ["PATH"], "PORT": str(server.port)}
        check = [sys.executable, "-m", "shared.healthcheck"]
        done = subprocess.run(check, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["reason"] == "no luck"


def test_redis_is_waited_for(tmp_path: Path) -> None:
    """It refuses the password at first; /readyz says so until it does not."""
    server = RedisServer(tmp_path)  # not everybody's: it would know passwords from now on
    url = server.url
    redis = Redis.from_url(url)
    redis.config_set("requirepass", "secret")
    port, found = free_port(), []
    waiting = threading.Thread(
        target=lambda: found.append(wait_for_redis(url, "127.0.0.1", port, poll=0.1))
    )
    try:
        waiting.start()
        reason = ""
        while "password" not in reason:
            try:
                reason = str(asked(port, "/readyz")[1].get("reason"))
            except urllib.error.URLError:
                continue
    finally:
        redis.config_set("requirepass", "")
    waiting.join(60)
    assert found[0].ping()
    server.stop()


def test_a_health_check_without_anybody_there() -> None:
    environment = {"PATH": os.environ["PATH"], "PORT": str(free_port()), "HOST": "0.0.0.0"}
    check = [sys.executable, "-m", "shared.healthcheck"]
    done = subprocess.run(check, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"port {environment['PORT']} does not answer" in done.stdout
