#!/usr/bin/env bash
# Creates a run, with arguments of `plumb run` after those of the stack: k8s/run.sh NAME [ARGUMENT]...
#   k8s/run.sh seed-2 run.seed=2 --limit=10
set -euo pipefail
name=${1:?usage: k8s/run.sh NAME [ARGUMENT]...}
shift
patch=
for argument; do
  argument=${argument//\\/\\\\}
  patch+="${patch:+,}{\"op\":\"add\",\"path\":\"/spec/template/spec/containers/0/args/-\",\"value\":\"${argument//\"/\\\"}\"}"
done
kubectl -n plumbline create job "$name" --from=cronjob/run --dry-run=client -o json |
  kubectl patch --local -f - --type=json -p "[$patch]" -o json |
  kubectl create -f -
