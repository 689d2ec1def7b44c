"""Programs that run in the environment of the trainers, ``.venv-verl``."""
