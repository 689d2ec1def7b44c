#!/usr/bin/env bash
# Renews the lock of each image: what its service's extra needs, at the versions of requirements.lock (needs uv).
set -euo pipefail
cd "$(dirname "$0")/../.."
quietly=(--quiet --no-emit-index-url --no-emit-find-links --no-header --no-annotate)
compile() { # LOCK, then arguments of `uv pip compile`
  local lock=$1
  shift
  uv pip compile "${quietly[@]}" --generate-hashes "$@" --output-file "packaging/images/$lock.lock"
}
ours=(--python-version 3.11 --python-platform linux --constraint requirements.lock)
for service in sandbox judge reward; do compile "$service" "${ours[@]}" --extra "$service" pyproject.toml; done
compile aggregator "${ours[@]}" --extra aggregator pyproject.toml
compile runner "${ours[@]}" --extra runner --extra data pyproject.toml packaging/images/runner.in
compile replay "${ours[@]}" --extra generator pyproject.toml
compile build "${ours[@]}" packaging/images/build.in

# The GPU's generator begins with vLLM's image, so its lock has what verl and we need beyond that.
gpu=(--python-version 3.12 --python-platform x86_64-manylinux_2_35)
there=()
while IFS= read -r name; do
  case $name in transformers | ray) ;; *) there+=(--no-emit-package "$name") ;; esac
done < <(uv pip compile "${quietly[@]}" "${gpu[@]}" packaging/images/vllm.in | sed -n 's/^\([A-Za-z0-9._-]*\)==.*/\1/p')
compile generator-gpu "${gpu[@]}" "${there[@]}" --extra generator pyproject.toml packaging/images/vllm.in packaging/images/verl.in
