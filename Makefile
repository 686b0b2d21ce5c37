# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed

.PHONY: demo test system browser clean

demo: $(STAMP)
	GOMP_SPINCOUNT=2000 $(BIN)/python examples/demo.py

test: $(STAMP) browser
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# the longer version of the system test of context selection, some 10 minutes
system: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m system tests/test_system_selection.py

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch numpy
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

# The page is tested in a real browser where one can be had; without one those tests say that they were skipped.
browser:
	@command -v chromium > /dev/null || { apt-get update && apt-get install --yes --no-install-recommends chromium; } \
		> /dev/null 2>&1 || true

clean:
	rm -rf $(VENV) runs/synthetic
