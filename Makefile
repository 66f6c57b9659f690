# Each environment is made by uv from a lock below lib/locks, which has a hash of every package.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv
INSTALL = $(UV) pip install --quiet --python $(BIN)/python
PYTEST := $(BIN)/python -m pytest
BOTH   := -n 2 --dist loadfile --no-loadscope-reorder
NEW    := $(shell sed -n 's|^\(test[^:]*\).*|tests/\1|p' tests/passes_on_new.txt | sort -u)

RUNS   := $(patsubst %,tests/unit/test_%.py,steps_and_runs comparison maintain tasks way_of_a_batch)# these share the lake of the suite, and a process has one lake

.DEFAULT_GOAL := help
.PHONY: help env demo lab test test-slow test-aws test-env aws-env test-airflow test-engines test-quick bench torture planted lint pages format lock clean

help: ## Show the commands
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(UV):
	@java -version 2>&1 | grep -qE 'version "(17|21)' || { echo "Java 17 is needed: install it (Debian: openjdk-17-jre-headless) or use environment.yml"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet uv==0.13.9

env: $(VENV)/.ready ## Build the virtual environment (Python 3.11; Java 17 must be there)
$(VENV)/.ready: lib/locks/demo.txt lib/pyproject.toml | $(UV)
	$(INSTALL) -r lib/locks/demo.txt
	$(INSTALL) --no-deps --editable lib
	@touch $@

test-env: $(VENV)/.test
$(VENV)/.test: lib/locks/test.txt $(VENV)/.ready
	$(INSTALL) -r lib/locks/test.txt
	@touch $@

aws-env: .venv-aws/.ready
.venv-aws/.ready: lib/locks/aws.txt | $(UV)
	$(UV) venv --quiet --clear --python $(BIN)/python .venv-aws
	$(UV) pip install --quiet --python .venv-aws/bin/python -r lib/locks/aws.txt
	@touch $@

lock: $(UV) ## Write the locks anew from lib/pyproject.toml
	$(call compiled,demo,--extra spark --extra workbook --extra demo --extra kafka pyproject.toml)
	$(call compiled,test,--extra spark --extra workbook --extra demo --extra kafka --extra test -c locks/demo.txt pyproject.toml)
	$(call compiled,bench,--extra bench -c locks/demo.txt pyproject.toml)
	$(call compiled,engines,--extra trino -c locks/demo.txt pyproject.toml)
	$(call compiled,aws,--group aws)
compiled = cd lib && $(abspath $(UV)) pip compile --quiet --python-version 3.11 --generate-hashes --no-header $(2) -o locks/$(1).txt

demo: env ## Run the whole workbook on an embedded database; prove that source and lake are equal
	@$(BIN)/python -m frazil_demo.run

lab: env ## Open copies of the notebooks in JupyterLab
	$(BIN)/frazil lab

test: test-env lint $(VENV)/classes.jsa ## Run all tests but the slow ones and those of AWS: two files at a time, each library in processes of its own
	$(PYTEST) tests -m "not slow and not torture and not aws" $(BOTH)
	FRAZIL_HOUSE=new $(PYTEST) tests/unit $(addprefix --ignore=,$(RUNS)) -m "not slow and not torture and not aws" $(BOTH)
	FRAZIL_HOUSE=new $(PYTEST) $(NEW) $(RUNS) -m "not slow and not torture and not aws" $(BOTH)
	FRAZIL_ICEBERG=1.11.0 FRAZIL_HOUSE=new $(PYTEST) tests/test_history.py tests/test_guarantees.py tests/test_cases.py -m "acceptance and not torture" -k "release or v3-1 or order-csv" $(BOTH)

test-slow: test-env $(VENV)/classes.jsa ## Run the tests that take more than half a minute each
	$(PYTEST) tests -m "slow and not aws" $(BOTH)

test-aws: test-env aws-env $(VENV)/classes.jsa ## Run the tests of the deployment on AWS: emulators and linters
	$(PYTEST) tests -m "aws and not slow" $(BOTH)
	FRAZIL_HOUSE=new $(PYTEST) tests/unit -m "aws and not slow" $(BOTH)

# Without the archive the tests run all the same, more slowly.
$(VENV)/classes.jsa: $(VENV)/.test
	-$(BIN)/python tests/archive_classes.py $@

test-airflow: test-env ## Run the Airflow DAG of the schedules page in a real Airflow, in an environment of its own
	$(UV) venv --quiet --clear --python $(BIN)/python .venv-airflow
	$(UV) pip install --quiet --python .venv-airflow/bin/python apache-airflow==3.1.3
	FRAZIL_AIRFLOW=$(CURDIR)/.venv-airflow/bin/python $(BIN)/python -m pytest tests/test_troubles.py -k airflow

test-engines: test-env aws-env .trino/classpath ## Read tables with Trino over Glue and REST (Maven and a JDK 25 must be there: TRINO_JAVA_HOME)
	$(INSTALL) -r lib/locks/engines.txt
	$(PYTEST) tests/test_engines.py -rs

.trino/classpath: tests/trino/pom.xml
	mvn --batch-mode --quiet --file $< dependency:build-classpath -Dmdep.outputFile=$(CURDIR)/$@

test-quick: test-env ## Run the tests that need no JVM
	$(PYTEST) tests -m "not spark and not notebooks and not slow and not torture and not aws" $(BOTH)
	FRAZIL_HOUSE=new $(PYTEST) tests/unit $(NEW) -m "not spark and not slow and not torture" $(BOTH)

bench: test-env ## Measure: BENCH="parse list" for some groups, QUICK=1 for small ones; figures go to runs/bench/results.json
	@$(INSTALL) -r lib/locks/bench.txt
	@$(BIN)/python tests/bench $(BENCH) $(if $(QUICK),--quick)

torture: test-env ## Try to break it: long histories, a fault at every request; COUNT chooses how many histories
	@COUNT=$(COUNT) $(PYTEST) tests -m torture $(BOTH)
	FRAZIL_HOUSE=new $(PYTEST) tests/unit -m torture $(BOTH)

planted: test-env ## Plant a fault of each kind in a copy of the library, and see which tests go red: PLANTED="rollback" for some
	@$(BIN)/python tests/planted.py $(PLANTED)

lint: test-env ## Check style, format and types
	$(BIN)/ruff check --config lib/pyproject.toml lib tests notebooks
	$(BIN)/ruff format --check --config lib/pyproject.toml lib tests
	cd lib && ../$(BIN)/mypy --cache-dir ../$(VENV)/mypy frazil

pages: test-env ## Write the pages of errors and settings anew, from the library itself
	PYTHONPATH=lib $(BIN)/python tests/pages.py

format: test-env ## Put code and imports in order
	$(BIN)/ruff check --fix --config lib/pyproject.toml lib tests
	$(BIN)/ruff format --config lib/pyproject.toml lib tests

clean: ## Remove the environments and all runs
	rm -rf $(VENV) .venv-aws .venv-airflow .trino runs
