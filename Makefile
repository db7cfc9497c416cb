# Everything works on a fresh checkout: each target sets up its own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SITE := $(VENV)/.site
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.PHONY: help setup train test check evidence site site-serve wheel compat format clean

help:
	@echo "make train   set up, then train CSPO on SafetyHalfCheetahVelocity-v1 for about two minutes"
	@echo "make test    set up, then run the tests"
	@echo "make check   set up, then lint and check types"
	@echo "make evidence  set up, then write the reports and tables of results/ and docs/evidence/ anew; trains nothing"
	@echo "make site    set up, then build the documentation into build/site, strictly; open build/site/index.html"
	@echo "make site-serve  the same, shown at http://127.0.0.1:8000 and built anew when a page changes"
	@echo "make wheel   set up, then build wheel and source distribution into dist/, alike wherever the commit is"
	@echo "make compat  set up, then try the wheel on every Python here, and write docs/support.md"
	@echo "make setup   create $(VENV) with pinned dependencies"
	@echo "make format  format the code"
	@echo "make clean   remove $(VENV) and caches (runs are kept)"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "cspo needs Python 3.10 or newer; set PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(SITE): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[site]'
	@touch $@

train: $(READY)
	$(BIN)/cspo train SafetyHalfCheetahVelocity-v1 --total-steps 3_000_000

test: $(READY) $(SITE)
	@sh scripts/system-packages.sh
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/check_users_code.py

evidence: $(READY)
	$(BIN)/python docs/make_evidence.py

site: $(SITE)
	$(MKDOCS) build --strict

site-serve: $(SITE)
	$(MKDOCS) serve

wheel: $(READY)
	$(BIN)/python scripts/make_packages.py
	$(BIN)/twine check --strict dist/*

compat: wheel
	$(BIN)/python scripts/compat.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
