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


def checked(port: int) -> subprocess.CompletedProcess[str]:
    """The health check of a container whose service listens on a port."""
    environment = {"PATH": os.environ["PATH"], "PORT": str(port), "HOST": "0.0.0.0"}
    command = [sys.executable, "-m", "shared.healthcheck"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_alive_and_not_ready_for_a_reason() -> None:
    with HealthServer("127.0.0.1", 0, Readiness(lambda: "no luck")) as server:
        assert asked(server.port, "/readyz") == (503, {"ready": False, "reason": "no luck"})
        assert asked(server.port, "/healthz") == (200, {"status": "alive"})
        assert asked(server.port, "/metrics") == (503, {"error": "no luck"})
        # A request to a service that waits is to be sent again.
        headers = {"Content-Type": "application/json"}
        url = f"http://127.0.0.1:{server.port}/v1/score"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=30)
        done = checked(server.port)
    assert caught.value.code == 503
    assert json.load(caught.value) == {"error": "no luck"}
    assert float(caught.value.headers["Retry-After"]) > 0
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
    done = checked(port := free_port())
    assert done.returncode == 1
    assert f"port {port} does not answer" in done.stdout
