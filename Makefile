# Two commands matter: `make demo` and `make test`. Both set everything up in .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO ?= demo
SEEDS ?= 0

.PHONY: demo test test-slow test-kill test-chaos test-flower test-dist lint bench bench-seconds bench-tables docs notebooks dist clean

demo: .venv/.demo
	$(BIN)/moml demo --out $(DEMO)

test: .venv/.test
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"
	$(BIN)/python -m pytest -q -n 2 -p no:jaxtyping -o addopts= -W default --doctest-modules src/moml

test-slow: .venv/.test
	$(BIN)/python -m pytest -q -m slow

test-kill: .venv/.test
	$(BIN)/python -m pytest -q tests/runs/test_killed.py -m slow

test-chaos: .venv/.test
	$(BIN)/python -m tests.chaos.run --seeds $(SEEDS) --minutes 10

test-flower: .venv/.test
	$(BIN)/python -m pytest -q tests/flower

test-dist: .venv/.test
	$(BIN)/python -m pytest -q tests/test_packaging.py -m slow

lint: .venv/.test
	$(BIN)/codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/figures.py

bench: .venv/.bench
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

bench-seconds: .venv/.bench-tables
	$(BIN)/python benchmarks/bench_seconds.py

bench-tables: .venv/.bench-tables
	$(BIN)/python benchmarks/tables/bench.py --out docs/results/tables.txt

docs: .venv/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/read -b html docs docs/_build/html
	$(BIN)/python -m sphinx -W -q -d docs/_build/read -b doctest docs docs/_build/doctest

notebooks: .venv/.notebooks
	$(BIN)/python docs/notebooks/run.py

dist: .venv/.test
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf .venv dist demo docs/_build

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable ".[report]" && touch $@

.venv/.test: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable ".[test]" && touch $@

.venv/.docs: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable ".[docs]" && touch $@

.venv/.ci: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable ".[test,docs]" && touch .venv/.test .venv/.docs $@

.venv/.notebooks: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable ".[docs,flower]" && touch $@

.venv/.bench: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable ".[report,flower,bench,table]" torch==2.13.0 && touch $@

.venv/.bench-tables: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable ".[bench,table,report]" && touch $@
