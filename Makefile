# make demo   set up and run the main job        make test   set up and pass the tests
# make check  lint, types, layers, spelling         make test-fast  the quick tests only, for the inner loop
# make bench  speed against its contenders         make coverage   how much of the code the tests run
# make docs   build the documentation            make soak   the long tests (kill moments, faults, audits)
# make test-spark  the tests of Spark (installs pyspark, needs Java)
# make dist   wheel and source archive in dist/, tried in a clean environment
# make clean  remove what was built

PYTHON ?= python3
VENV ?= .venv
# Tests that are run at a time; one more than there are cores where many of them wait for other processes.
WORKERS ?= 2
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some images forbid byte code; without it every process of the tests compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test suite test-spark test-fast check compiled coverage soak bench docs dist clean

demo: $(VENV)/core.stamp
	$(BIN)/fcac demo

# with "make -j 2 test" the check runs beside the tests
test: check suite

suite: compiled
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not soak"

test-fast: $(VENV)/all.stamp
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not soak and not slow"

test-spark: $(VENV)/spark.stamp
	$(BIN)/python -m pytest -q tests/spark -m "not soak"

coverage: $(VENV)/all.stamp
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not soak" --cov fcac --cov-report term

check: $(VENV)/all.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell
	$(BIN)/python .ci/check_assets.py

compiled: $(VENV)/all.stamp
	$(BIN)/python .ci/compile_kernels.py

soak: $(VENV)/all.stamp
	$(BIN)/python -m pytest -q -m soak --hypothesis-profile searching

bench: $(VENV)/all.stamp
	$(BIN)/python benchmarks/speed.py

docs: $(VENV)/all.stamp
	$(BIN)/zensical build --clean --strict
	$(BIN)/python docs/versions.py site

dist: $(VENV)/all.stamp
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python .ci/check_dist.py dist

clean:
	rm -rf $(VENV) build dist site out .cache src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The demo needs the core only; the tests need every extra.
$(VENV)/core.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	test -e $(VENV)/all.stamp || $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[privacy]"
	@echo "Compiling the kernels, once ..."
	@$(BIN)/fcac demo --out $(VENV)/first-demo > $(VENV)/first-demo.log 2>&1 || { cat $(VENV)/first-demo.log; exit 1; }
	touch $@

$(VENV)/all.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all]"
	touch $@

# 450 MB, so only for those who want it
$(VENV)/spark.stamp: $(VENV)/all.stamp
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[spark]"
	touch $@
