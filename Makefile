# make demo | test | check | gates | bench. Each makes .venv first where it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# So many files of tests at once, each with a local Ray cluster of its own.
AT_ONCE ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test check lint gates bench clean

$(VENV)/run.stamp: pyproject.toml constraints.txt
	@echo "making $(VENV) and installing into it: about a minute"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/run.stamp
	$(BIN)/flowrl train --config settings/demo_ppo_cartpole.json

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(AT_ONCE) --dist loadfile

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

gates: $(VENV)/dev.stamp
	$(BIN)/python -m gates

bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)
