"""Write recipes as verl resolves them, in its environment: compose_recipe.py FOLDER OUT NAME..."""

import sys
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

folder, out, *names = sys.argv[1:]
with initialize_config_dir(config_dir=folder, version_base=None):
    for name in names:
        text = OmegaConf.to_yaml(compose(config_name=name), resolve=True)
        Path(out, f"{name}.yaml").write_text(text, encoding="utf-8")
