"""k8s/README.md: its example renders, and it names every overlay and component."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s.cluster import Cluster
from tools.k8s_validate import K8S, ROOT, Target, render

README = (K8S / "README.md").read_text()


@pytest.fixture
def mine() -> Iterator[Path]:
    folder = K8S / "mine"
    if folder.exists():
        pytest.skip("somebody has an overlay of this name")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH")
def test_the_example_is_an_overlay(mine: Path):
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (mine / "kustomization.yaml").write_text(example)
    config = (ROOT / "configs" / "phase0_eval.yaml").read_text()
    config = config.replace("n_gpus_per_node: 8", "n_gpus_per_node: 1")
    (mine / "phase0_eval.yaml").write_text(config)
    cluster = Cluster(render(Target("mine", mine)))
    judge, generator = (cluster.pod(name).spec["containers"][0] for name in ("judge", "generator"))
    assert judge["image"] == "registry.example.org/plumbline/judge:0.1.0"
    assert generator["resources"]["limits"]["nvidia.com/gpu"] == "1"
    configs = [d["data"] for d in cluster.of("ConfigMap") if "phase0_eval.yaml" in d["data"]]
    assert "n_gpus_per_node: 1" in configs[0]["phase0_eval.yaml"]
    assert "demo.yaml" in configs[0]


@pytest.mark.parametrize("folder", ["overlays", "components"])
def test_all_parts_are_named(folder: str):
    for part in (K8S / folder).iterdir():
        assert f"`{part.name}`" in README
