# Everything goes through one virtual environment, made from the package's own pins.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help env demo lab test test-slow aws-env test-airflow test-engines test-ddl test-quick bench torture planted spark35-env screens lint format clean

help: ## Show the commands
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

env: $(VENV)/.ready ## Build the virtual environment (Python 3.11; Java 17 must be there)
$(VENV)/.ready: lib/pyproject.toml
	@java -version 2>&1 | grep -qE 'version "(17|21)' || { echo "Java 17 is needed: install it (Debian: openjdk-17-jre-headless) or use environment.yml"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable "lib[spark,workbook,demo,kafka,test]"
	@touch $@

demo: env ## Run the whole workbook on an embedded database; prove that source and lake are equal
	@$(BIN)/python -m frazil_demo.run

lab: env ## Open copies of the notebooks in JupyterLab
	$(BIN)/frazil lab

test: env lint spark35-env aws-env $(VENV)/classes.jsa ## Run all tests but the slow ones, two files at a time, on both Spark lines
	$(BIN)/python -m pytest tests -m "not slow and not torture" -n 2 --dist loadfile --no-loadscope-reorder
	.venv35/bin/python -m pytest tests/test_end_to_end.py tests/test_small_file_merge.py tests/test_few_messages.py tests/test_large_batches.py tests/test_row_delta_by_scan.py tests/test_row_lineage.py -m "not slow" -n 2 --dist loadfile

test-slow: env $(VENV)/classes.jsa ## Run the tests that take more than half a minute each: together an hour
	$(BIN)/python -m pytest tests -m slow -n 2 --dist loadfile --no-loadscope-reorder

# Without the archive the tests run all the same, more slowly.
$(VENV)/classes.jsa: $(VENV)/.ready
	-$(BIN)/python tests/archive_classes.py $@

spark35-env: .venv35/.ready ## Build the environment of the second Spark line (3.5)
.venv35/.ready: lib/pyproject.toml
	$(PYTHON) -m venv .venv35
	.venv35/bin/pip install --quiet --editable "lib[workbook,demo,kafka,test]" pyspark==3.5.9
	@touch $@

aws-env: .venv-aws/.ready ## Build the environment of the AWS emulator and its linters, which need another botocore
.venv-aws/.ready: Makefile
	$(PYTHON) -m venv .venv-aws
	.venv-aws/bin/pip install --quiet ministack==1.5.33 cfn-lint==1.58.0 statelint==3.1.0
	@touch $@

test-airflow: env ## Run the Airflow DAG of the schedules page in a real Airflow, in an environment of its own
	$(PYTHON) -m venv .venv-airflow && .venv-airflow/bin/pip install --quiet apache-airflow==3.1.3
	FRAZIL_AIRFLOW=$(CURDIR)/.venv-airflow/bin/python $(BIN)/python -m pytest tests/test_troubles.py -k airflow

test-engines: env aws-env .trino/classpath ## Read tables with Trino over Glue and REST (Maven and a JDK 25 must be there: TRINO_JAVA_HOME)
	$(BIN)/pip install --quiet --editable "lib[trino]"
	$(BIN)/python -m pytest tests/test_engines.py -rs

.trino/classpath: tests/trino/pom.xml
	mvn --batch-mode --quiet --file $< dependency:build-classpath -Dmdep.outputFile=$(CURDIR)/$@

test-ddl: env ## Try every schema change in every form of files (lib/docs/schema-changes.md)
	FRAZIL_DDL=1 $(BIN)/python -m pytest tests/test_schema_changes.py

test-quick: env ## Run the tests that need no Spark
	$(BIN)/python -m pytest tests -m "not spark and not notebooks and not slow and not torture" -n 2 --dist loadfile --no-loadscope-reorder

bench: env ## Measure: BENCH="parse list" for some groups, QUICK=1 for small ones; figures go to runs/bench/results.json
	@$(BIN)/pip install --quiet --editable "lib[bench]"
	@$(BIN)/python tests/bench $(BENCH) $(if $(QUICK),--quick)

torture: env ## Try to break it: long histories, a fault at every request, damaged files; TORTURE=files (or another suite), COUNT and SEED to choose
	@$(if $(TORTURE),true,COUNT=$(COUNT) $(BIN)/python -m pytest tests -m torture -n 2 --dist loadfile)
	@$(BIN)/python tests/torture $(TORTURE) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

planted: env ## Plant a fault of each kind in a copy of the library, and see which tests go red: PLANTED="rollback" for some
	@$(BIN)/python tests/planted.py $(PLANTED)

screens: env ## Take pictures of report, notebooks, runs and JupyterLab after a demo (Chromium must be there), to look at
	@$(BIN)/python tests/screens.py

lint: env ## Check style and format of code and notebooks
	$(BIN)/ruff check --config lib/pyproject.toml lib tests notebooks
	$(BIN)/ruff format --check --config lib/pyproject.toml lib tests

format: env ## Put code and imports in order
	$(BIN)/ruff check --fix --config lib/pyproject.toml lib tests
	$(BIN)/ruff format --config lib/pyproject.toml lib tests

clean: ## Remove the environments and all runs
	rm -rf $(VENV) .venv35 .venv-aws .venv-airflow .trino runs
