"""Programs in the environment of the trainers, with the client of the reward service."""

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# Seconds of one program: torch, verl and Ray start slowly on a machine at work on other things.
PATIENCE = 900.0
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_AUTH_MODE": "disabled",  # else Ray writes a token into the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps 127.0.0.1 as the address of the node
    "VLLM_NO_USAGE_STATS": "1",
}


def run_module(
    python: Path, module: str, *arguments: object, url: str, seconds: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE`` against the reward service at ``url``."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    paths = [str(REPOSITORY), str(REPOSITORY / "clients" / "reward")]
    return subprocess.run(
        [python, "-m", module, *map(str, arguments)],
        env={
            **kept,
            **_OFFLINE,
            "PYTHONPATH": os.pathsep.join(paths),
            "PLUMBLINE_REWARD_URL": url,
        },
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def run_program(
    python: Path, program: str, *arguments: object, url: str, seconds: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Run one of ``programs``; fails the test with the end of its output where it fails."""
    module = f"tests.training.programs.{program}"
    done = run_module(python, module, *arguments, url=url, seconds=seconds)
    assert done.returncode == 0, f"{program}: {done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done
