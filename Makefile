# Every target makes the virtual environment it needs. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
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
# Whole files beside one another (tests/support/side_by_side.py).
SIDE_BY_SIDE := --numprocesses 4 --dist loadfile -m "not kubernetes and not alone$(LEFT_OUT)"
# What measures time, or would be too much for others: faults at load, and groups of real clients.
ALONE := @tests/alone.txt -m "alone and not kubernetes$(LEFT_OUT)"
# The whole of what both do a part of (tests/support/proofs.py).
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
test: $(VENV)/.dev ## the tests that need no Kubernetes, but for those that run long
ifdef ARGS
	@$(PYTEST) $(ARGS)
else
	@failed=0; \
	$(PYTEST) $(SIDE_BY_SIDE) --durations=15 || failed=$$?; \
	$(PYTEST) $(ALONE) --durations=15 || failed=$$?; \
	exit $$failed  # who waited that long sees everything that failed
endif

.PHONY: test-all
test-all: ## those that run long, too, as in every run of .ci/run (some 35 minutes)
	@FAIRLEAD_PROOFS=ci $(MAKE) --no-print-directory test

.PHONY: proofs
proofs: proofs-live proofs-simulated ## the long proofs whole: hundreds of seeds, more kills and drills (some 20 minutes)

.PHONY: proofs-live
proofs-live: $(VENV)/.dev ## of these, kills and drills of real processes; they measure time
	@FAIRLEAD_PROOFS=1 $(PYTEST) $(PROOFS_LIVE) --durations=5 $(ARGS)

.PHONY: proofs-simulated
proofs-simulated: $(VENV)/.dev ## of these, what only computes
	@FAIRLEAD_PROOFS=1 $(PYTEST) $(PROOFS_SIMULATED) --durations=5 $(ARGS)

.PHONY: check
check: lint types imports check-generated ## lint, formatting, types, import rules and generated files

.PHONY: lint
lint: $(VENV)/.dev ## ruff: rules and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: fmt
fmt: $(VENV)/.dev ## format and fix what ruff can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: types
types: $(VENV)/.dev ## mypy, strict
	@$(BIN)/mypy

.PHONY: imports
imports: $(VENV)/.dev ## who may import whom (ARCHITECTURE.md)
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
check-generated: $(VENV)/.dev $(KAFKA_CLIENTS_JAR) ## fail when a generated file is not what its generator makes
	@$(BIN)/python -m fairlead_operator.resources --check
	@cd broker && ../$(BIN)/python -m codegen --kafka-clients ../$(KAFKA_CLIENTS_JAR) --check

.PHONY: simulate
simulate: $(VENV)/.dev ## the cluster, storage and power losses simulated over many seeds (SEEDS=…); SEED=… replays one
ifdef SEED
	@FAIRLEAD_SEED=$(SEED) $(PYTEST) tests/simulation/test_seeds.py tests/simulation/test_group_seeds.py tests/simulation/test_transaction_seeds.py tests/simulation/test_zookeeper_seeds.py tests/simulation/test_moving_seeds.py -k promise $(ARGS)
else
	@FAIRLEAD_PROOFS=1 FAIRLEAD_SEEDS=$(SEEDS) $(PYTEST) tests/simulation tests/crash/test_power_loss.py tests/property tests/fuzz --timeout 3600 $(ARGS)
endif

.PHONY: drills
drills: $(VENV)/.dev ## break real clusters at load RUNS=… times; writes the table of docs/failover.md
	@FAIRLEAD_RUNS=$(or $(RUNS),100) $(PYTEST) tests/failover tests/crash/test_kill_minus_nine.py --timeout 36000 $(ARGS)

.PHONY: drills-kubernetes
drills-kubernetes: $(VENV)/.dev ## the same on Kubernetes, RUNS=… times each, where there is a cluster as for e2e
	@CLUSTER_TOOL="$(CLUSTER_TOOL)" FAIRLEAD_RUNS=$(or $(RUNS),30) $(BIN)/python tests/e2e/run.py tests/e2e/test_drills.py $(ARGS)

.PHONY: exactly-once
exactly-once: $(VENV)/.dev ## applications that consume, transform and produce among faults, RUNS=… times (SEED=… the first)
	@$(BIN)/python tests/exactly_once/run.py --runs $(or $(RUNS),20) --seed $(or $(SEED),0) $(ARGS)

.PHONY: reshape
reshape: $(VENV)/.dev ## three brokers become five and three again at load among kills, RUNS=… times (SEED=… the first)
	@$(BIN)/python tests/reshape/run.py --runs $(or $(RUNS),20) --seed $(or $(SEED),0) $(ARGS)

.PHONY: reshape-kubernetes
reshape-kubernetes: $(VENV)/.dev ## the same once on Kubernetes by `kubectl scale`, where there is a cluster as for e2e
	@CLUSTER_TOOL="$(CLUSTER_TOOL)" FAIRLEAD_PROOFS=1 $(BIN)/python tests/e2e/run.py tests/reshape/test_on_kubernetes.py -s $(ARGS)

.PHONY: bench
bench: $(VENV)/.dev ## measure against Apache Kafka in one run (table, JSON and a chart in benchmarks/results)
	@$(BIN)/python benchmarks/run.py $(ARGS)

.PHONY: pipeline
pipeline: $(VENV)/.dev ## ten million records through Spark among kills, counted by others (some ten minutes)
	@$(BIN)/python benchmarks/pipeline.py $(ARGS)

.PHONY: scale
scale: $(VENV)/.dev ## times and memory with 1,000 and with 10,000 partitions on three brokers
	@$(BIN)/python benchmarks/scale.py $(ARGS)

.PHONY: e2e
e2e: $(VENV)/.dev ## everything that needs Kubernetes, on a kind cluster made for it or on FAIRLEAD_E2E_CONTEXT
	@CLUSTER_TOOL="$(CLUSTER_TOOL)" $(BIN)/python tests/e2e/run.py $(ARGS)

RELEASE := PYTHONPATH=release PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m
RELEASE_IMAGE ?=
.PHONY: release
release: $(VENV)/.dev ## all that is released, into dist/ (RELEASE_IMAGE=… is what its manifests name)
	@$(RELEASE) fairlead_release --image "$(RELEASE_IMAGE)"

.PHONY: smoke
smoke: release ## install from dist/ alone, start a cluster, send a record through it, render the charts
	@$(RELEASE) fairlead_release.smoke dist

.PHONY: lock
lock: $(VENV)/.dev ## write images/locks anew from the package index (ARGS=--upgrade: newest versions)
	@$(RELEASE) fairlead_release.locks $(ARGS)

IMAGE ?= localhost/fairlead:dev
BASE_IMAGE ?=
# Another architecture than this machine's, such as linux/arm64, where docker can run it.
PLATFORM ?=
BUILD_ARGS = --build-arg VERSION=$(VERSION) $(if $(PLATFORM),--platform $(PLATFORM))
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
.PHONY: images
images: ## the container image (IMAGE=… names it, BASE_IMAGE=… is what it stands on; PLATFORM=linux/arm64)
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
images-spark: spark-connector ## the image of StreamJobs (SPARK_IMAGE=…; SPARK_BASE_IMAGE=… has Python and Java)
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
spark-demo: $(VENV)/.dev ## a Spark job over the sample flights, on the local cluster of `make up`
	@$(BIN)/python examples/flights/load.py --replace
	@$(BIN)/fairlead topic create late-flights --if-not-exists
	@$(BIN)/fairlead spark run examples/spark/late_flights.yaml --available-now --fresh
	@$(BIN)/fairlead group describe late-flights

.PHONY: clean
clean: ## remove what the targets above made, a local cluster's data aside
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build
