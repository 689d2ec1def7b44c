"""The backend that generates: verl's standalone replicas (vLLM or SGLang) on Ray.

The service itself imports neither Ray nor verl. A Ray cluster begun here and each replica live in
child processes that it talks to in lines of JSON, so that whatever happens to an engine, to Ray or
to verl (which waits for ever where it blocks), requests go on, and a replica's end is that of a
process: Ray then frees what belonged to it.
"""

from services.generator.backends.verl.backend import serve_verl

__all__ = ["serve_verl"]
