"""Compose file that gives each pinned image that the engine lacks its stand-in's name.

``stand_ins.py FILE`` writes it; ``bases.sh`` makes the stand-ins, with the same names and tags.
Where the registry answers it replaces nothing: the stack under test is docker-compose.yml's.
"""

import re
import subprocess
import sys
from pathlib import Path

import yaml

_ROOT = Path(__file__).parents[3]
_BASE = re.compile(r"^ARG PYTHON_IMAGE=(\S+)$", re.MULTILINE)
_DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def write(file: Path, *composed: str) -> None:
    """Write the file that overrides those in the repository that are ``composed``."""
    replaced = {}
    for name in composed or ("docker-compose.yml",):
        services = yaml.safe_load((_ROOT / name).read_text())["services"]
        overrides = {name: _replaced(service) for name, service in services.items()}
        replaced |= {name: new for name, new in overrides.items() if new or name not in replaced}
    file.write_text(yaml.safe_dump({"services": replaced}))


def tag(image: str) -> str:
    """The name by which the engine has ``image``: itself, or its stand-in's."""
    inspected = subprocess.run(
        ["docker", "image", "inspect", image], capture_output=True, check=False
    )
    return image if inspected.returncode == 0 else image.partition("@")[0]


def _replaced(service: dict[str, object]) -> dict[str, object]:
    match service:
        case {"build": {"dockerfile": str(dockerfile)}}:
            base = _BASE.search((_ROOT / dockerfile).read_text())
            return {"build": {"args": {"PYTHON_IMAGE": tag(base[1])}}} if base else {}
        case {"image": str(image)}:
            pinned = _DEFAULT.sub(r"\1", image)
            return {} if tag(pinned) == pinned else {"image": tag(pinned)}
    return {}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
