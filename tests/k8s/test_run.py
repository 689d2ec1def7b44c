"""The deployed run: configuration, paths and GPUs."""

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest
import yaml

from shared.config import Config, load_config
from shared.config_files import load_document
from tests.k8s.cluster import Cluster, defects, env_of
from tools.k8s_validate import ROOT


def _file(path: str) -> str:
    """A path in an image as one of the repository."""
    return str(ROOT / path.removeprefix("/app/"))


def run_config(cluster: Cluster) -> Config:
    """What the Job's command line comes to."""
    words = cluster.pod("runner").spec["containers"][0]["args"]
    assert words[0] == "run"
    flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
    overrides = [word for word in words[1:] if not word.startswith("--")]
    assert flags.keys() == {"config", "output"}
    return load_config(_file(flags["config"]), [f"output.dir={flags['output']}", *overrides])


def served_config(cluster: Cluster) -> Config:
    environment = env_of(cluster.pod("generator").spec["containers"][0])
    overrides = shlex.split(environment.get("PLUMBLINE_GENERATOR_OVERRIDES", ""))
    return load_config(_file(environment["PLUMBLINE_GENERATOR_CONFIG"]), overrides)


def mounts(cluster: Cluster) -> dict[str, dict]:
    container = cluster.pod("runner").spec["containers"][0]
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


def unusable_paths(cluster: Cluster) -> Iterator[str]:
    """Paths of the command that the runner's pod lacks."""
    config = run_config(cluster)
    writable = {path for path, mount in mounts(cluster).items() if not mount.get("readOnly")}
    if not PurePosixPath(config.output_dir).is_relative_to("/outputs"):
        yield config.output_dir
    if "/outputs" not in writable:
        yield "/outputs cannot be written"
    for path in (*config.data.eval_files, config.data.lock or ""):
        where = PurePosixPath(path)
        mounted = any(where.is_relative_to(folder) for folder in mounts(cluster))
        if not mounted and not (ROOT / path).exists():
            yield path


def test_the_command_is_one_that_the_command_line_takes(clusters: dict[str, Cluster]):
    assert defects(clusters, unusable_paths) == {}


def test_data_are_prepared_where_the_run_looks_for_them(everything: Cluster):
    words = everything.pod("data").spec["containers"][0]["args"]
    document = load_document(
        ROOT / "configs" / "data.yaml", [w for w in words if "=" in w and "--" not in w]
    )
    config = run_config(everything)
    assert {path.rpartition("/")[0] for path in config.data.eval_files} == {document["output"]}
    assert config.data.lock == f"{document['manifests']}/manifest.lock.json"


@pytest.mark.parametrize("name", ["gpu-single-node", "gpu-multi-node"])
def test_generator_and_run_mean_the_same_model_and_gpus(rendered, name: str):
    cluster = rendered(name)
    run, served = run_config(cluster), served_config(cluster)
    assert run.trainer == served.trainer
    assert run.actor_rollout_ref == served.actor_rollout_ref


def test_one_node_has_the_gpus_that_the_configuration_wants(rendered):
    cluster = rendered("gpu-single-node")
    config = served_config(cluster)
    resources = cluster.pod("generator").spec["containers"][0]["resources"]
    for kind in ("requests", "limits"):
        assert int(resources[kind]["nvidia.com/gpu"]) == config.trainer.n_gpus_per_node
    assert config.trainer.nnodes == 1
    assert config.generation.verl.ray_address is None


def test_a_ray_cluster_has_the_nodes_and_gpus_that_the_configuration_wants(rendered):
    cluster = rendered("gpu-multi-node")
    config, ray = served_config(cluster), cluster.one("RayCluster", "plumbline")
    (group,) = ray["spec"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert group["replicas"] == group["minReplicas"] == config.trainer.nnodes == 2
    assert int(limits["nvidia.com/gpu"]) == config.trainer.n_gpus_per_node
    # verl asks for two of Ray's CPUs with each GPU, and waits for ever where there are fewer.
    assert int(limits["cpu"]) >= 2 * config.trainer.n_gpus_per_node
    address = f"{ray['metadata']['name']}-head-svc:6379"
    assert config.generation.verl.ray_address == address
    (node,) = cluster.pod("generator").spec["initContainers"]
    assert f"--address={address}" in node["command"]
    assert not any("gpu" in key for key in node["resources"]["limits"])


def scattered(cluster: Cluster) -> Iterator[str]:
    """ReadWriteOnce claims of pods that the scheduler may place on several nodes."""
    for claim in cluster.of("PersistentVolumeClaim"):
        name, modes = claim["metadata"]["name"], claim["spec"]["accessModes"]
        users = [
            pod
            for pod in cluster.pods
            for volume in pod.spec.get("volumes", [])
            if volume.get("persistentVolumeClaim", {}).get("claimName") == name
        ]
        if modes == ["ReadWriteMany"] or len(users) < 2:
            continue
        for pod in users:
            terms = pod.spec.get("affinity", {}).get("podAffinity", {})
            terms = terms.get("requiredDuringSchedulingIgnoredDuringExecution", [])
            if not any(
                all(user.matches(term["labelSelector"]) for user in users) for term in terms
            ):
                yield f"{pod.name} shares {name}"


def test_pods_on_several_nodes_share_only_volumes_that_allow_it(clusters: dict[str, Cluster]):
    # The component names ReadWriteMany as its requirement.
    assert defects(clusters, scattered).keys() == {"gpu-single-node+kuberay"}
    for claim in clusters["gpu-multi-node"].of("PersistentVolumeClaim"):
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_nothing_that_an_upgrade_changes_is_immutable(clusters: dict[str, Cluster]):
    assert {name for name, cluster in clusters.items() if cluster.of("Job")} == set()


@pytest.mark.parametrize("overlay", ["gpu-single-node", "gpu-multi-node"])
def test_everything_tolerates_the_taint_of_gpu_nodes(rendered, overlay: str):
    for pod in rendered(overlay).pods:
        assert "nvidia.com/gpu" in [entry["key"] for entry in pod.spec["tolerations"]], pod.name


def test_configurations_are_those_of_the_repository(minimal: Cluster):
    (name,) = [n for n in minimal.names("ConfigMap") if n.startswith("plumbline-configs")]
    for file, text in minimal.one("ConfigMap", name)["data"].items():
        assert yaml.safe_load(text) == yaml.safe_load((ROOT / "configs" / file).read_text())


def test_the_sandbox_runs_as_many_programs_as_it_has_cores(minimal: Cluster):
    container = minimal.pod("sandbox").spec["containers"][0]
    places = env_of(container)["PLUMBLINE_SANDBOX_CONCURRENCY"]
    assert places == container["resources"]["limits"]["cpu"]
