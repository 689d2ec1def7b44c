"""Print a recipe as verl resolves it; runs in verl's environment: compose_recipe.py FOLDER NAME."""

import sys

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

with initialize_config_dir(config_dir=sys.argv[1], version_base=None):
    print(OmegaConf.to_yaml(compose(config_name=sys.argv[2]), resolve=True))
