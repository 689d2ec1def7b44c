#!/usr/bin/env python3
"""Stand-in for kubectl, docker, kind, k3d and minikube: records what would exist afterwards.

The state is JSON in $STAND_IN_STATE. What needs no cluster goes to the real kubectl, $KUBECTL.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ["STAND_IN_STATE"])
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def kubectl(words: list[str], state: dict) -> None:
    words = [word for word in words if word not in ("-n", "plumbline")]
    options = dict(re.findall(r"--([\w-]+)=(\S+)", " ".join(words)))
    match words:
        case ["apply", "-k", folder, *_]:
            state["documents"] += documents(real("kustomize", folder))
        case ["apply", "-f", file, *_]:
            state["documents"] += documents(Path(file).read_text())
        case ["create", "namespace", *_]:
            pass
        case ["create", "secret" | "configmap" as kind, *rest]:
            names = [word for word in rest if not word.startswith("-")]
            keys = re.findall(r"--from-(?:literal|file)=([\w.-]+)", " ".join(rest))
            keys += ["tls.crt", "tls.key"] if rest[0] == "tls" else []
            state[kind][names[-1]] = keys
        case ["get", "secret", name, *_]:
            if name not in state["secret"]:
                sys.exit(f"secrets {name!r} not found")
            print(json.dumps(dict.fromkeys(state["secret"][name], "x")))
        case ["patch", "secret", name, "-p", patch]:
            state["secret"][name] += json.loads(patch)["stringData"]
        case ["create", "job", name, *_]:
            template = options["from"].removeprefix("cronjob/")
            cronjobs = {cronjob["metadata"]["name"]: cronjob for cronjob in of(state, "CronJob")}
            if template not in cronjobs:
                sys.exit(f"cronjobs {template!r} not found")
            spec = cronjobs[template]["spec"]["jobTemplate"]["spec"]
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
            if "dry-run" in options:
                print(json.dumps(job | {"spec": spec}))
            else:
                state["jobs"].append(name)
        case ["patch", "--local", *_]:
            print(real(*words))
        case ["create", "-f", "-"]:
            state["jobs"].append(json.load(sys.stdin)["metadata"]["name"])
        case ["wait" | "logs" | "delete" | "port-forward" as verb, *rest]:
            services = [service["metadata"]["name"] for service in of(state, "Service")]
            for kind, name in re.findall(r"\b(job|service)[ /](\S+)", " ".join(rest)):
                if name not in (state["jobs"] if kind == "job" else services):
                    sys.exit(f"{verb}: {kind} {name!r} not found")
        case _:
            sys.exit(f"the stand-in does not know kubectl {words}")


def documents(text: str) -> list[dict]:
    import yaml  # here, because most commands need none of it

    return list(yaml.load_all(text, yaml.CSafeLoader))


def of(state: dict, kind: str) -> list[dict]:
    return [document for document in state["documents"] if document["kind"] == kind]


def real(*words: str) -> str:
    command = [os.environ["KUBECTL"], *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def docker(words: list[str], state: dict) -> None:
    match words:
        case ["compose", *rest] if "build" in rest:
            services: dict[str, dict] = {}
            for file in os.environ.get("COMPOSE_FILE", "docker-compose.yml").split(":"):
                services |= documents(Path(file).read_text())[0]["services"]
            images = [service["image"] for service in services.values() if "build" in service]
            state["built"] += [
                _VARIABLE.sub(lambda m: os.environ.get(m[1]) or m[2], image) for image in images
            ]
        case ["build", *rest]:
            state["built"].append(rest[rest.index("-t") + 1])
        case ["push", image]:
            load([image], state)


def load(images: list[str], state: dict) -> None:
    """``kind load docker-image``, ``k3d image import``, ``minikube image load``, or a push."""
    for image in images:
        if image not in state["built"]:
            sys.exit(f"image {image!r} was not built")
        state["loaded"].append(image)


if __name__ == "__main__":
    before = STATE.read_text()
    state = json.loads(before)
    match Path(sys.argv[0]).name:
        case "kubectl":
            kubectl(sys.argv[1:], state)
        case "docker":
            docker(sys.argv[1:], state)
        case _:
            load(sys.argv[3:], state)
    # Of the commands of a pipe, only the one that changes something writes.
    if state != json.loads(before):
        STATE.write_text(json.dumps(state))
