#!/usr/bin/env bash
# Builds the images that the tests want, so that they find them in the engine's cache: prepare.sh [IMAGE]...
set -euo pipefail
cd "$(dirname "$0")/../.."
docker info >/dev/null 2>&1 || { echo "no Docker engine answers, so no images are built"; exit 0; }
compose() { if docker compose version >/dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tests/compose/offline/bases.sh "$work"
.venv/bin/python -m tests.compose.offline.stand_ins "$work/stand-ins.yml"
[ $# -gt 0 ] || set -- sandbox judge aggregator runner reward generator
for image in "$@"; do
  compose -f docker-compose.yml -f "$work/stand-ins.yml" --profile reward --profile runner build "$image"
done
