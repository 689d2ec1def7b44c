# `make demo` and `make test` install their dependencies into .venv. They need only Python, git and make.
SHELL := /bin/sh
PYTHON ?= $(shell for p in python3.12 python3.13 python3.11 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
VERL_VENV := .venv-verl
VERL_STAMP := $(VERL_VENV)/.installed
K8S_VENV := .venv-k8s
K8S_STAMP := $(K8S_VENV)/.installed
EXPORTS_VENV := .venv-exports
EXPORTS_STAMP := $(EXPORTS_VENV)/.installed
CLIENT_VENV := .venv-client
CLIENT_STAMP := $(CLIENT_VENV)/.installed
TINY := outputs/tiny-model
OSV_SCANNER := ghcr.io/google/osv-scanner:v2.5.1@sha256:8108ae94eadea5a02c9bec6e646909d5b790b44bd62d7f5b7f0b1d6d0ffc7734
LOCKS := $(wildcard packaging/*.lock packaging/images/*.lock services/sandbox/*.lock)
COMPOSE = $(shell if docker compose version >/dev/null 2>&1; then echo docker compose; else echo docker-compose; fi)
# These commands must know the profiles of all running services.
COMPOSE_ALL = $(COMPOSE) --profile reward --profile runner --profile observability
PYTHON311 ?= $(shell for p in python3.11 $(PYTHON); do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && echo $$p && break; done)

PYTHON310 ?= python3.10

.DEFAULT_GOAL := help
.PHONY: help install install-dev install-verl demo demo-verl tiny-model test test-fast test-containers test-verl test-all durations client-dist test-client lint format types reference lock audit pin-images \
	up down logs scale images install-exports install-k8s k8s-render k8s-validate test-k8s chaos bench-pipeline bench-reward bench-judge bench-generate bench-view endurance clean

PAGE_STYLE := packaging/page/style.sh

help: ## list the usual targets; CONTRIBUTING.md has the others
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

$(STAMP): packaging/plumbline.lock pyproject.toml services/sandbox/programs.lock
	@if [ -z "$(PYTHON)" ]; then echo "Plumbline needs Python 3.11, 3.12 or 3.13; none found on the PATH (set PYTHON=/path/to/python)" >&2; exit 2; fi
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv module (Debian: apt-get install python3-venv)" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --require-hashes -r packaging/plumbline.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e ./clients/reward
	$(BIN)/python -m services.sandbox.programs
	@touch $@

$(DEV_STAMP): $(STAMP) packaging/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r packaging/dev.lock
	@touch $@

$(VERL_STAMP): packaging/verl-cpu.lock packaging/vllm-alias/pyproject.toml
	@command -v $(PYTHON311) >/dev/null 2>&1 || { echo "verl on the CPU needs Python 3.11 (set PYTHON311=/path/to/python3.11)" >&2; exit 2; }
	$(PYTHON311) -m venv --clear $(VERL_VENV)
	$(VERL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --no-compile -r packaging/verl-cpu.lock
	$(VERL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation ./packaging/vllm-alias
	$(VERL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e ./clients/reward
	@# What each process of a replica imports; compiled by several of them at once, it would take them twice as long to start, and
	@# containers that mount the packages read-only could not keep what they compile.
	@$(VERL_VENV)/bin/python -m compileall -q -j 2 $(VERL_VENV)/lib/python3.11/site-packages >/dev/null 2>&1 || true
	@touch $@

install-verl: $(VERL_STAMP) # install verl, vLLM and TRL for the CPU into .venv-verl (3 GB)

install: $(STAMP) ## install Plumbline into .venv

install-dev: $(DEV_STAMP) ## and the tools of contributors

demo: $(STAMP) ## a complete run on the demo data (no Docker, GPU or network)
	$(BIN)/plumb run --config configs/demo.yaml --embedded

$(TINY): $(VERL_STAMP)
	$(VERL_VENV)/bin/python -m tools.tiny_model $@

tiny-model: $(TINY) # train a very small model on the demo's recorded answers (CPU, three to five minutes)

demo-verl: $(STAMP) $(TINY) # the demo with real verl and vLLM on the CPU
	$(BIN)/plumb run --config configs/demo_verl.yaml --embedded

# What `make test` leaves to the targets below it: containers and real verl, and what is long or needs the machine for itself.
ORDINARY := not nightly and not alone and not compose and not verl
# Three processes keep two cores at work, since many tests wait for a limit of time.
PYTEST = $(BIN)/python -m pytest --durations 20
SHARED_OUT = -n $(or $(JOBS),3) --dist loadfile
# Files in which tests have one of these marks, because collecting all tests takes long. tests/conftest.py refuses a mark that
# this does not find.
marked = $(shell grep -rlE 'mark\.($(1))\b' tests --include='test_*.py')

test: $(DEV_STAMP) ## the tests that every change must pass (JOBS=N: so many processes)
	$(PYTEST) $(SHARED_OUT) -m "$(ORDINARY)"

test-fast: $(DEV_STAMP) ## those of them that start no stack, no browser and no hostile program
	$(PYTEST) $(SHARED_OUT) -m "$(ORDINARY) and not browser and not e2e and not fuzz and not hostile and not real_data"

test-containers: $(DEV_STAMP) # the stack in containers, with each service killed (as root on Debian it installs and starts Docker)
	tests/compose/engine.sh $(PYTEST) --capture=sys -m "compose and not verl and not nightly" $(call marked,compose)

test-verl: $(DEV_STAMP) $(TINY) # runs and training with real verl and vLLM on the CPU, with a replica killed
	$(PYTEST) -m "verl and not compose and not nightly" $(call marked,verl)

test-all: $(DEV_STAMP) $(TINY) # all tests, every rung of isolation, ten minutes each of chaos and endurance (hours)
	@status=0; export PLUMBLINE_TEST_ALL_RUNGS=1 PLUMBLINE_TEST_EXPLORE=1; \
	$(PYTEST) $(SHARED_OUT) -m "not alone and not compose and not verl" || status=1; \
	$(PYTEST) -m "alone and not compose and not verl" $(call marked,alone) || status=1; \
	tests/compose/engine.sh $(PYTEST) --capture=sys -m compose $(call marked,compose) || status=1; \
	$(PYTEST) -m "verl and not compose" $(call marked,verl) || status=1; \
	$(BIN)/python -m tests.chaos --minutes 10 || status=1; \
	$(BIN)/python -m tests.endurance --minutes 10 || status=1; \
	exit $$status

durations: $(DEV_STAMP) # measure again how long the files of tests take, by which `make test` divides them
	$(PYTEST) $(SHARED_OUT) --record-durations -m "$(ORDINARY)"

$(CLIENT_STAMP): packaging/client.lock
	@command -v $(PYTHON310) >/dev/null 2>&1 || { echo "the client is built and tested on Python 3.10 (set PYTHON310=/path/to/python3.10)" >&2; exit 2; }
	$(PYTHON310) -m venv --clear $(CLIENT_VENV)
	$(CLIENT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r packaging/client.lock
	@touch $@

client-dist: $(CLIENT_STAMP) # build plumbline-reward's wheel and source distribution into dist/
	rm -rf dist
	cd clients/reward && ../../$(CLIENT_VENV)/bin/python -c \
		"from setuptools.build_meta import build_sdist, build_wheel; build_sdist('../../dist'); build_wheel('../../dist')"
	rm -rf clients/reward/build

test-client: client-dist # test the built distribution plumbline-reward on Python 3.10, with nothing of Plumbline beside it
	$(CLIENT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall dist/*.whl
	$(CLIENT_VENV)/bin/python -m pytest -c clients/reward/pyproject.toml --rootdir . --confcutdir tests/clients \
		--timeout 120 -m 'not nightly' --ignore tests/clients/test_verl.py tests/clients

$(EXPORTS_STAMP): packaging/exports.lock
	$(PYTHON) -m venv --clear $(EXPORTS_VENV)
	$(EXPORTS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r packaging/exports.lock
	@touch $@

$(K8S_STAMP): packaging/k8s.lock
	$(PYTHON) -m venv --clear $(K8S_VENV)
	$(K8S_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r packaging/k8s.lock
	@touch $@

audit: # known vulnerabilities of the packages in every lock (needs Docker and the network)
	docker run --rm -v "$(CURDIR):/src:ro" -w /src $(OSV_SCANNER) scan source --no-resolve \
		$(foreach lock,$(LOCKS),--lockfile requirements.txt:$(lock))

pin-images: # print what each image that we do not build has as its digest now (needs Docker with buildx)
	@grep -rhoE '[a-z0-9][a-z0-9./-]*:[A-Za-z0-9_.-]+@sha256:' docker-compose.yml Makefile services/*/Dockerfile* k8s .github/workflows | \
		sed 's/@.*//' | sort -u | while read -r image; do \
		echo "$$image@$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$$image")"; done

up: ## build and start the stack in containers (needs Docker)
	@packaging/up.sh $(COMPOSE)

down: ## stop the stack; its data stay
	@$(COMPOSE_ALL) down

logs: ## follow the logs of the stack (SERVICE=judge: of one service)
	@$(COMPOSE_ALL) logs --tail=100 --follow $(SERVICE)

scale: ## set the number of judge workers (N=8)
	@[ -n "$(N)" ] || { echo "make scale N=8: how many judges?" >&2; exit 2; }
	@$(COMPOSE_ALL) up -d --no-recreate --no-deps --scale judge=$(N) judge

images: export PLUMBLINE_REVISION ?= $(shell git rev-parse HEAD 2>/dev/null)
images: ## build all images; with docker-compose.gpu.yml in COMPOSE_FILE the GPU generator's, too
	$(COMPOSE_ALL) build

install-exports: $(EXPORTS_STAMP) # install EvalPlus and Inspect, which the tests of exports run, into .venv-exports (650 MB)

install-k8s: $(K8S_STAMP) # install the manifest validators into .venv-k8s

k8s-render: # print the manifests of an overlay (OVERLAY=minimal, gpu-single-node, gpu-multi-node, model-server)
	@kubectl kustomize k8s/overlays/$(or $(OVERLAY),minimal)

k8s-validate: $(K8S_STAMP) # validate the manifests with the schemas of two Kubernetes versions and checkov's policies (needs kubectl)
	$(K8S_VENV)/bin/python -m tools.k8s_validate

test-k8s: $(DEV_STAMP) # on the cluster of kubectl: changes of a stack, the demo, a thousand samples while pods are killed (k8s/README.md)
	PLUMBLINE_TEST_CLUSTER=1 $(BIN)/python -m pytest -q tests/k8s/test_cluster.py tests/k8s/test_cluster_runs.py

chaos: $(DEV_STAMP) # disturb processes of runs; verdicts must stay (ARGS: --minutes N --seed N --faults kill,freeze)
	$(BIN)/python -m tests.chaos $(ARGS)

endurance: $(DEV_STAMP) # two hours of reward traffic with faults: memory, keys, descriptors at start and end (ARGS: --minutes N --rate N)
	$(BIN)/python -m tests.endurance $(ARGS)


lint: $(DEV_STAMP) ## ruff, and for the page's scripts eslint and prettier: check rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(PAGE_STYLE) --check

format: $(DEV_STAMP) # the same: fix rules and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@$(PAGE_STYLE) --write

types: $(DEV_STAMP) ## mypy --strict on plumbline/, shared/, services/, tools/ and clients/reward
	$(BIN)/mypy
	cd clients/reward && ../../$(BIN)/mypy

bench-generate: $(DEV_STAMP) # tokens per second behind the router against `vllm serve` (ARGS: see docs/benchmarks.md)
	$(or $(VERL_PYTHON),$(VERL_VENV)/bin/python) -m tests.bench.generate $(ARGS)

reference: $(DEV_STAMP) ## regenerate the tables in docs/reference.md and docs/metrics.md
	$(BIN)/python -m tools.reference

lock: ## update the locks from pyproject.toml and packaging/ (needs uv)
	packaging/lock.sh

bench-pipeline: $(DEV_STAMP) # samples per second, and CPU time per sample, of queue, ledger, judge and aggregator
	$(BIN)/python -m tests.bench.pipeline $(ARGS)

bench-reward: $(DEV_STAMP) # a training step's burst through the reward service (ARGS: see docs/benchmarks.md)
	$(BIN)/python -m tests.bench.reward $(ARGS)

bench-judge: $(DEV_STAMP) # what a verdict costs, against other judges and the answers' own CPU time (ARGS: see docs/benchmarks.md)
	$(BIN)/python -m tests.bench.judge $(ARGS)

bench-view: $(DEV_STAMP) # `plumb view` over two runs of 100,000 samples and 200 of 1,000: load time, memory, latency (ARGS: --samples N)
	$(BIN)/python -m tests.bench.view $(ARGS)

clean: # remove everything that the targets above created
	rm -rf $(VENV) $(VERL_VENV) $(K8S_VENV) $(EXPORTS_VENV) $(CLIENT_VENV) outputs/tiny-model outputs/demo_verl .pytest_cache .mypy_cache .ruff_cache .hypothesis outputs/demo
