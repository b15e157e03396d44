# Everything runs from a .venv inside the clone; the first call sets it up.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
FETCHED := .venv/.fetched
INSTALLED := .venv/.installed

.PHONY: chat test test-all lint clean

# make chat [MODEL=folder] [ARGS="--budget 64"]
chat: $(READY) $(if $(MODEL),,$(FETCHED))
	@$(BIN)/h2o-chat $(if $(MODEL),--model "$(MODEL)") $(ARGS)

# A process for each core and, as some tests wait, two more; up to four. Whoever runs out of tests takes some of another's.
PROCESSES := $(shell $(PYTHON) -c 'import os; print(min(4, len(os.sched_getaffinity(0)) + 2))' 2>/dev/null || echo 4)
PYTEST := $(BIN)/pytest -n $(PROCESSES) --dist worksteal

# Bytecode is kept, also where that is switched off: each process would compile all tests anew, for 3 s.
unexport PYTHONDONTWRITEBYTECODE

# Every behaviour once: make test [ARGS=tests/cli]
test: $(READY)
	$(PYTEST) -m "not sweep" $(ARGS)

# The same, and sweeps over more policies, budgets and examples.
test-all: $(READY)
	$(PYTEST) $(ARGS)

# Collecting finds two test files of one name, of which a whole run would leave one out.
lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/make/check_docstrings.py
	@$(BIN)/pytest --collect-only -qq > .venv/collected.txt || { cat .venv/collected.txt; exit 1; }

clean:
	rm -rf .venv

# The native step is compiled again when a source is newer. Without a compiler everything works without it.
$(READY): $(INSTALLED) h2o_chat/native/build.py $(wildcard h2o_chat/native/src/*)
	@$(BIN)/python h2o_chat/native/build.py || true
	touch $@

# SmolLM2, the model to begin with: once. Where it cannot be had, pocket answers, and the screen says how to try again.
$(FETCHED): | $(READY)
	@$(BIN)/h2o-chat models pull smollm2 || true
	@touch $@

# torch goes first: where pip finds a wheel without CUDA (docs/USING.md, "Installing"), nothing asks for another one.
# pip itself must be new enough to know --group.
$(INSTALLED): pyproject.toml constraints.txt hatch_build.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "h2o-chat needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt --group dev -e .
	touch $@
