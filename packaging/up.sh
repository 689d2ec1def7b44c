#!/bin/bash
# Starts the stack, and prints one line for what keeps it from starting or a service from being ready: up.sh COMPOSE...
set -uo pipefail
printed=$(mktemp)
trap 'rm -f "$printed"' EXIT
failed=0
say() {
  echo "make up: $1 (docs/troubleshooting.md)" >&2
  failed=1
}

if ! { docker info && "$@" version; } >/dev/null 2>&1; then
  say 'no Docker engine with Compose answers: install and start Docker, or let your user use it (group docker)'
  exit 1
fi
if ! "$@" up -d 2>&1 | tee "$printed"; then
  case $(cat "$printed") in
    *'device driver "nvidia"'* | *nvidia-container-cli*)
      say 'no GPU in containers: install the NVIDIA container toolkit, or take docker-compose.gpu.yml out of COMPOSE_FILE' ;;
    *'already allocated'* | *'address already in use'*)
      say 'a port is in use: set AGGREGATOR_PORT, REWARD_PORT, PROMETHEUS_PORT or GRAFANA_PORT in .env' ;;
    *denied* | *'manifest unknown'* | *'no such host'* | *'failed to resolve'*)
      say 'an image cannot be pulled: check the network, PLUMBLINE_REGISTRY and PLUMBLINE_VERSION, or build them with make images' ;;
    *) say 'the stack does not start' ;;
  esac
fi

state() { docker inspect -f '{{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{end}}' "$1"; }
for container in $("$@" ps -q 2>/dev/null); do
  # A generator that loads weights takes minutes, and is not waited for.
  for _ in $(seq 30); do
    [ "$(state "$container")" = starting ] || break
    sleep 1
  done
  case $(state "$container") in
    unhealthy | restarting)
      say "$(docker inspect -f '{{.Name}}' "$container") is not ready: $(docker logs --tail 1 "$container" 2>&1)" ;;
  esac
done
exit $failed
