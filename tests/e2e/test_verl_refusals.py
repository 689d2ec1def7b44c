"""Configurations that real verl, vLLM and Ray cannot serve are refused, without orphans."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.service.processes import free_port
from tests.e2e.verl import CONFIG, SMALL, Mark, refused, wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.verl, pytest.mark.e2e, pytest.mark.timeout(600)]

# A cluster on loopback, which is not Ray's way.
ON_LOOPBACK = {"RAY_AUTH_MODE": "disabled", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def check_refusal(
    verl_python: Path, said: str, *overrides: str, seconds: float = 120, **settings: str
) -> None:
    mark = Mark()
    done = refused(
        verl_python, CONFIG, *SMALL, *overrides, seconds=seconds, **mark.variable, **settings
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("generator: ")
    assert said in line
    mark.check_clean()


def test_an_architecture_that_the_engine_does_not_know(
    verl_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["NoSuchModel"]}))
    said = "does not support NoSuchModel"
    check_refusal(verl_python, said, f"actor_rollout_ref.model.path={folder}")


def test_random_weights(verl_python: Path, tiny_model: Path, tmp_path: Path) -> None:
    """Of the tiny model's shape; the engine has to start to tell."""
    folder = tmp_path / "model"
    program = (
        "import sys, transformers\n"
        "config = transformers.AutoConfig.from_pretrained(sys.argv[1])\n"
        "transformers.AutoModelForCausalLM.from_config(config).save_pretrained(sys.argv[2])\n"
    )
    shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    command = [verl_python, "-c", program, tiny_model, folder]
    subprocess.run(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=True)
    said = f"{folder} looks randomly initialized"
    check_refusal(verl_python, said, f"actor_rollout_ref.model.path={folder}", seconds=500)


def test_gpus_that_are_not_there(verl_python: Path, tiny_model: Path) -> None:
    model, gpus = f"actor_rollout_ref.model.path={tiny_model}", "generation.verl.cpu_engine=false"
    said = "asked for 2 GPUs (trainer.n_gpus_per_node), and there are 0"
    check_refusal(verl_python, said, model, gpus, "trainer.n_gpus_per_node=2")


def test_a_cluster_that_is_not_there(verl_python: Path, tiny_model: Path) -> None:
    overrides = [
        f"actor_rollout_ref.model.path={tiny_model}",
        "generation.verl.ray_address=127.0.0.1:9",
    ]
    check_refusal(verl_python, "no Ray cluster at 127.0.0.1:9", *overrides)


@pytest.fixture(scope="module")
def ray_cluster(verl_python: Path) -> Iterator[str]:
    """Address of an external Ray cluster that declares one GPU."""
    port, folder = free_port(), tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    options = ["--head", "--block", "--num-gpus=1", "--num-cpus=4", f"--port={port}"]
    options += ["--node-ip-address=127.0.0.1", "--include-dashboard=false", f"--temp-dir={folder}"]
    environment = {**os.environ, **ON_LOOPBACK}
    process = subprocess.Popen(
        [verl_python.parent / "ray", "start", *options], env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    wait_for(lambda: b"Ray runtime started" in process.stdout.readline(), "Ray", seconds=60)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.communicate(timeout=30)
    shutil.rmtree(folder, ignore_errors=True)


def test_a_placement_that_is_not_available(
    verl_python: Path, tiny_model: Path, ray_cluster: str
) -> None:
    overrides = [
        f"actor_rollout_ref.model.path={tiny_model}",
        f"generation.verl.ray_address={ray_cluster}",
        "generation.verl.placement_timeout=3",
        "trainer.n_gpus_per_node=2",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
    ]
    said = (
        "no placement within 3 s: replica 0 asks for 2 GPUs and 4 CPUs on one node; the cluster "
        "has 1 GPUs and 4 CPUs in all"
    )
    check_refusal(verl_python, said, *overrides, **ON_LOOPBACK)
