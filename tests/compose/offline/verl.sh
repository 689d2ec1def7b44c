#!/usr/bin/env bash
# Builds the generator's image for verl on the CPU: verl.sh IMAGE (needs the image generator-cpu)
set -euo pipefail
here=$(dirname "$0")
docker build -q --build-arg GENERATOR=localhost/plumbline/generator-cpu:0.1.0 -t "$1" -f "$here/verl.Dockerfile" "$here" >/dev/null
