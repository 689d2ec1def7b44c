#!/usr/bin/env bash
# Renews all locks from pyproject.toml and the `*.in` files (needs uv): what is installed here, and what each image installs.
set -euo pipefail
cd "$(dirname "$0")/.."
quietly=(--quiet --no-emit-index-url --no-emit-find-links --no-header --no-annotate)
compile() { # LOCK, then arguments of `uv pip compile`
  local lock=$1
  shift
  uv pip compile "${quietly[@]}" --generate-hashes "$@" --output-file "$lock.lock"
}
any=(--universal --python-version 3.11)
gpu=(--python-version 3.12 --python-platform x86_64-manylinux_2_35)
cd packaging
compile plumbline "${any[@]}" --extra cli ../pyproject.toml
compile dev "${any[@]}" --group ../pyproject.toml:dev --constraint plumbline.lock
compile k8s "${any[@]}" k8s.in
compile client --universal --python-version 3.10 client.in
cpu=(--python-version 3.11 --python-platform x86_64-manylinux_2_35)
compile exports "${cpu[@]}" --override exports.overrides exports.in
compile verl-cpu "${cpu[@]}" --extra generator --override verl-cpu.overrides ../pyproject.toml verl-cpu.in
compile sglang "${gpu[@]}" --extra generator --override sglang.overrides ../pyproject.toml sglang.in
compile ../services/sandbox/programs --python-version 3.11 --python-platform linux programs.in

# Images have what their service's extra needs, at the versions of plumbline.lock.
cd images
ours=(--python-version 3.11 --python-platform linux --constraint ../plumbline.lock)
for service in sandbox judge reward aggregator; do
  compile "$service" "${ours[@]}" --extra "$service" ../../pyproject.toml
done
compile runner "${ours[@]}" --extra runner --extra data ../../pyproject.toml runner.in
compile replay "${ours[@]}" --extra generator ../../pyproject.toml
compile build "${ours[@]}" build.in

# The GPU's generator begins with vLLM's image, so its lock has what verl and we need beyond that.
there=()
while IFS= read -r name; do
  case $name in transformers | ray) ;; *) there+=(--no-emit-package "$name") ;; esac
done < <(uv pip compile "${quietly[@]}" "${gpu[@]}" vllm.in | sed -n 's/^\([A-Za-z0-9._-]*\)==.*/\1/p')
compile generator-gpu "${gpu[@]}" "${there[@]}" --extra generator ../../pyproject.toml vllm.in verl.in
