#!/usr/bin/env bash
# Creates the namespace and the Secrets of all overlays and components, where they are missing: random, one key for each user.
# Secrets that only you know are in README.md. To replace a password: delete the Secret, repeat this, restart the pods.
set -euo pipefail
kubectl apply -f "$(dirname "$0")/base/namespace.yaml"
secret() { # NAME KEY...
  local name=$1 key known values=
  shift
  kubectl -n plumbline get secret "$name" >/dev/null 2>&1 || kubectl -n plumbline create secret generic "$name"
  known=$(kubectl -n plumbline get secret "$name" -o 'jsonpath={.data}')
  for key; do
    [[ $known == *"\"$key\":"* ]] || values+="${values:+, }\"$key\": \"$(openssl rand -hex 24)\""
  done
  [ -z "$values" ] || kubectl -n plumbline patch secret "$name" -p "{\"stringData\": {$values}}"
}
secret plumbline-redis password judge runner aggregator keda reward
secret plumbline-tokens aggregator generator reward sandbox
secret plumbline-ray token
