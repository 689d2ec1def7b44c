"""The distribution: its version, its emptiness of dependencies, and that it loads no trainer."""

import subprocess
import sys
from pathlib import Path

import plumbline_reward

ROOT = Path(__file__).parents[2]


def test_its_version_is_plumblines() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{plumbline_reward.__version__}"' in project


def test_it_loads_the_standard_library_only() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "import plumbline_reward, plumbline_reward.openrlhf_reward\n"
        "import plumbline_reward.trainers\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    folder = Path(plumbline_reward.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['plumbline_reward']"
