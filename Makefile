# Every target makes the virtual environment it needs. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# The distribution's own Python where it is new enough and has venv: Debian's takes a tenth less
# processor time than the same version as pyenv builds it. Another one: make PYTHON=…
SYSTEM_PYTHON := /usr/bin/python3
PYTHON ?= $(shell $(SYSTEM_PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $(SYSTEM_PYTHON) || echo python3)
VENV := .venv
BIN := $(VENV)/bin
PYTHONSAFEPATH := 1
export PYTHONSAFEPATH
# Compiled modules are kept whatever the environment says: without them each process of a local
# cluster compiles Fairlead anew, and each worker of pytest all tests.
unexport PYTHONDONTWRITEBYTECODE
KAFKA_VERSION := 4.3.1
KAFKA_CLIENTS_JAR := .cache/kafka-clients-$(KAFKA_VERSION).jar
SEEDS ?= 200
# A program that makes a kind cluster without an image registry, where one lies beside the checkout.
CLUSTER_TOOL ?= $(wildcard ../shared/cluster/cluster)

PYTEST := $(BIN)/python -m pytest
# `make test` leaves out what runs long (tests/long.txt); whoever does the proofs does that, too.
LEFT_OUT := $(if $(FAIRLEAD_PROOFS),, and not long)
# Whole files beside one another (tests/support/suite/side_by_side.py).
SIDE_BY_SIDE := --numprocesses 4 --dist loadfile -m "not kubernetes and not alone$(LEFT_OUT)"
# What measures time, or would be too much for others: faults at load, and groups of real clients.
ALONE := @tests/alone.txt -m "alone and not kubernetes$(LEFT_OUT)"
# The whole of what both do a part of (tests/support/suite/proofs.py).
PROOFS_SIMULATED := tests/simulation tests/fuzz/test_hostile_logins.py tests/property --numprocesses 2 --dist loadfile -m proof
PROOFS_LIVE := @tests/alone.txt tests/rest tests/spark tests/clients tests/unit/charts/test_alerts.py -m "proof and not kubernetes"

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  \033[1m%-17s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/fairlead: pyproject.toml
	@echo "installing Fairlead into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@$(BIN)/python -m compileall -q broker operator cli  # processes start faster from the first time on
	@touch $@

$(VENV)/.dev: $(BIN)/fairlead
	@echo "installing the development tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

.PHONY: setup
setup: $(VENV)/.dev ## make the virtual environment with every development tool

.PHONY: up
up: $(BIN)/fairlead ## start a local three-broker cluster with the sample topics
	@$(BIN)/fairlead up -f examples/topics.yaml

.PHONY: down
down: $(BIN)/fairlead ## stop the local cluster; its data stays
	@$(BIN)/fairlead down

.PHONY: test
test: $(VENV)/.dev ## the tests that need no Kubernetes, without those that run long
ifdef ARGS
	@$(PYTEST) $(ARGS)
else
	@failed=0; \
	$(PYTEST) $(SIDE_BY_SIDE) --durations=15 || failed=$$?; \
	$(PYTEST) $(ALONE) --durations=15 || failed=$$?; \
	exit $$failed  # who waited that long sees everything that failed
endif

.PHONY: test-all
test-all: ## as test, with the tests that run long, as in every run of .ci/run (some 35 minutes)
	@FAIRLEAD_PROOFS=ci $(MAKE) --no-print-directory test

.PHONY: proofs
proofs: proofs-live proofs-simulated ## the long proofs whole: hundreds of seeds, more kills and drills (some 20 minutes)

.PHONY: proofs-live
proofs-live: $(VENV)/.dev ## the proofs that kill and drill real processes; they measure time
	@FAIRLEAD_PROOFS=1 $(PYTEST) $(PROOFS_LIVE) --durations=5 $(ARGS)

.PHONY: proofs-simulated
proofs-simulated: $(VENV)/.dev ## the proofs that only compute
	@FAIRLEAD_PROOFS=1 $(PYTEST) $(PROOFS_SIMULATED) --durations=5 $(ARGS)

.PHONY: check
check: lint types imports check-generated ## lint, formatting, types, import rules and generated files

.PHONY: lint
lint: $(VENV)/.dev ## ruff: rules and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: fmt
fmt: $(VENV)/.dev ## format the code, and fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: types
types: $(VENV)/.dev ## mypy, strict
	@$(BIN)/mypy

.PHONY: imports
imports: $(VENV)/.dev ## check which package may import which (ARCHITECTURE.md)
	@$(BIN)/lint-imports

$(KAFKA_CLIENTS_JAR):
	@mkdir -p $(@D)
	@command -v mvn >/dev/null || { echo "generating the messages needs Maven (apt-get install maven)"; exit 1; }
	mvn -q -B dependency:copy -Dartifact=org.apache.kafka:kafka-clients:$(KAFKA_VERSION) -DoutputDirectory=$(@D)

.PHONY: generate
generate: $(VENV)/.dev $(KAFKA_CLIENTS_JAR) ## regenerate fairlead_wire.messages, crds/ and docs/resources.md
	@$(BIN)/python -m fairlead_operator.resources
	@cd broker && ../$(BIN)/python -m codegen --kafka-clients ../$(KAFKA_CLIENTS_JAR)

.PHONY: check-generated
check-generated: $(VENV)/.dev $(KAFKA_CLIENTS_JAR) ## fail if a generated file is not up to date
	@$(BIN)/python -m fairlead_operator.resources --check
	@cd broker && ../$(BIN)/python -m codegen --kafka-clients ../$(KAFKA_CLIENTS_JAR) --check

.PHONY: simulate
simulate: $(VENV)/.dev ## simulate cluster, storage and power losses over many seeds (SEEDS=…); SEED=… replays one
ifdef SEED
	@FAIRLEAD_SEED=$(SEED) $(PYTEST) tests/simulation/test_seeds.py tests/simulation/test_group_seeds.py tests/simulation/test_transaction_seeds.py tests/simulation/test_zookeeper_seeds.py tests/simulation/test_moving_seeds.py -k promise $(ARGS)
else
	@FAIRLEAD_PROOFS=1 FAIRLEAD_SEEDS=$(SEEDS) $(PYTEST) tests/simulation tests/crash/test_power_loss.py tests/property tests/fuzz --timeout 3600 $(ARGS)
endif

.PHONY: drills
drills: $(VENV)/.dev ## break real clusters at load RUNS=… times; this writes the table of docs/failover.md
	@FAIRLEAD_RUNS=$(or $(RUNS),100) $(PYTEST) tests/failover tests/crash/test_kill_minus_nine.py --timeout 36000 $(ARGS)

.PHONY: drills-kubernetes
drills-kubernetes: $(VENV)/.dev ## drills on Kubernetes, RUNS=… times each; needs a cluster as e2e does
	@CLUSTER_TOOL="$(CLUSTER_TOOL)" FAIRLEAD_RUNS=$(or $(RUNS),30) $(BIN)/python tests/e2e/run.py tests/e2e/test_drills.py $(ARGS)

.PHONY: exactly-once
exactly-once: $(VENV)/.dev ## run consume-transform-produce applications among faults, RUNS=… times (SEED=… the first)
	@$(BIN)/python tests/exactly_once/run.py --runs $(or $(RUNS),20) --seed $(or $(SEED),0) $(ARGS)

.PHONY: reshape
reshape: $(VENV)/.dev ## scale three brokers to five and back at load among kills, RUNS=… times (SEED=… the first)
	@$(BIN)/python tests/reshape/run.py --runs $(or $(RUNS),20) --seed $(or $(SEED),0) $(ARGS)

.PHONY: reshape-kubernetes
reshape-kubernetes: $(VENV)/.dev ## reshape once on Kubernetes by `kubectl scale`; needs a cluster as e2e does
	@CLUSTER_TOOL="$(CLUSTER_TOOL)" FAIRLEAD_PROOFS=1 $(BIN)/python tests/e2e/run.py tests/reshape/test_on_kubernetes.py -s $(ARGS)

.PHONY: bench
bench: $(VENV)/.dev ## measure Fairlead beside Apache Kafka (table, JSON and a chart in benchmarks/results)
	@$(BIN)/python benchmarks/run.py $(ARGS)

.PHONY: pipeline
pipeline: $(VENV)/.dev ## send ten million records through Spark among kills, and count them (some ten minutes)
	@$(BIN)/python benchmarks/pipeline.py $(ARGS)

.PHONY: scale
scale: $(VENV)/.dev ## measure times and memory with 1,000 and 10,000 partitions on three brokers
	@$(BIN)/python benchmarks/scale.py $(ARGS)

.PHONY: e2e
e2e: $(VENV)/.dev ## run the tests that need Kubernetes, on a new kind cluster or on FAIRLEAD_E2E_CONTEXT
	@CLUSTER_TOOL="$(CLUSTER_TOOL)" $(BIN)/python tests/e2e/run.py $(ARGS)

RELEASE := PYTHONPATH=release PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m
RELEASE_IMAGE ?=
.PHONY: release
release: $(VENV)/.dev ## build everything that is released in dist/ (RELEASE_IMAGE=… is the image in its manifests)
	@$(RELEASE) fairlead_release --image "$(RELEASE_IMAGE)"

.PHONY: smoke
smoke: release ## install from dist/ alone, start a cluster, send a record through it, render the charts
	@$(RELEASE) fairlead_release.smoke dist

.PHONY: lock
lock: $(VENV)/.dev ## write images/locks again from the package index (ARGS=--upgrade: newest versions)
	@$(RELEASE) fairlead_release.locks $(ARGS)

IMAGE ?= localhost/fairlead:dev
BASE_IMAGE ?=
# Another architecture than this machine's, such as linux/arm64, where docker can run it.
PLATFORM ?=
BUILD_ARGS = --build-arg VERSION=$(VERSION) $(if $(PLATFORM),--platform $(PLATFORM))
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
.PHONY: images
images: ## build the container image (IMAGE=… is its name, BASE_IMAGE=… its base; PLATFORM=linux/arm64)
	@command -v docker >/dev/null || { echo "building images needs docker (https://docs.docker.com/engine/install)"; exit 1; }
	@if [ -z "$(BASE_IMAGE)" ] && [ -x "$(CLUSTER_TOOL)" ]; then \
	    "$(CLUSTER_TOOL)" image-build -- -q $(BUILD_ARGS) -t $(IMAGE) -f images/Dockerfile .; \
	else \
	    docker build -q $(BUILD_ARGS) $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) -t $(IMAGE) -f images/Dockerfile .; \
	fi
	@docker image inspect -f '{{index .RepoTags 0}}: {{.Size}} bytes' $(IMAGE)

SPARK_IMAGE ?= localhost/fairlead-spark:dev
SPARK_BASE_IMAGE ?=
.PHONY: spark-connector
spark-connector: $(VENV)/.dev ## fetch Spark's Kafka connector from Maven into .cache
	@$(BIN)/python benchmarks/spark_connector.py

.PHONY: images-spark
images-spark: spark-connector ## build the image of StreamJobs (SPARK_IMAGE=…; SPARK_BASE_IMAGE=… has Python and Java)
	@command -v docker >/dev/null || { echo "building images needs docker (https://docs.docker.com/engine/install)"; exit 1; }
	@if [ -n "$(SPARK_BASE_IMAGE)" ]; then \
	    docker build -q $(BUILD_ARGS) --build-arg BASE_IMAGE=$(SPARK_BASE_IMAGE) -t $(SPARK_IMAGE) -f images/spark/Dockerfile .; \
	elif [ -x "$(CLUSTER_TOOL)" ]; then \
	    "$(CLUSTER_TOOL)" image-build --java -- -q $(BUILD_ARGS) -t $(SPARK_IMAGE) -f images/spark/Dockerfile .; \
	else \
	    echo "name a base with SPARK_BASE_IMAGE: Python 3.11 with venv and pip, and Java 17"; exit 1; \
	fi
	@docker image inspect -f '{{index .RepoTags 0}}: {{.Size}} bytes' $(SPARK_IMAGE)

.PHONY: spark-demo
spark-demo: $(VENV)/.dev ## run a Spark job over the sample flights, on the local cluster of `make up`
	@$(BIN)/python examples/flights/load.py --replace
	@$(BIN)/fairlead topic create late-flights --if-not-exists
	@$(BIN)/fairlead spark run examples/spark/late_flights.yaml --available-now --fresh
	@$(BIN)/fairlead group describe late-flights

.PHONY: clean
clean: ## remove everything that the targets above made, except the data of a local cluster
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build
