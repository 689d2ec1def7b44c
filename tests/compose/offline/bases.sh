#!/usr/bin/env bash
# Sees to the images that are not ours, which docker-compose.yml and the Dockerfiles name by digest. Those that are not here and
# cannot be pulled get stand-ins under the name and tag: no image can be given a digest. With those `stand_ins.py` makes the
# builds and the stack begin. bases.sh WORK_FOLDER (in the repository's root)
set -euo pipefail
work=$1
here=tests/compose/offline
mkdir -p "$work"

pinned() { # NAME: as it is pinned
  grep -ohE "$1:[^@ ]+@sha256:[0-9a-f]{64}" docker-compose.yml services/*/Dockerfile* | sort -u
}
there() { docker image inspect "$1" >/dev/null 2>&1 || timeout 300 docker pull -q "$1" >/dev/null 2>&1; }
stand_in() { # NAME, FILE
  local tag
  tag=$(pinned "$1") && there "$tag" && return
  tag=${tag%@*}
  docker image inspect "$tag" >/dev/null 2>&1 ||
    docker build -q --build-arg BASE="$python" -t "$tag" -f "$here/$2.Dockerfile" "$here" >/dev/null 2>&1
}

python=$(pinned python)
if ! there "$python"; then
  python=${python%@*}
  docker image inspect "$python" >/dev/null 2>&1 || "$here/base.sh" "$python" "$work"
fi
stand_in redis redis
stand_in prom/prometheus prometheus
