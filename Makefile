# On a fresh machine with Python 3.11+, make and a compiler:
#   make demo          three comparisons on built-in datasets, in about a minute
#   make test          linters, types, import rules, doctests and tests
#   make checks        linters, types and import rules
#   make test-fast     short tests without a browser or processes, in less than two minutes
#   make test-slow     long tests
#   make test-oldest   the tests with the oldest supported dependencies
#   make docs          the documentation, into docs/_build/html
#   make bench         the benchmarks, into benchmarks/results
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two workers with one BLAS thread each.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Tests start many processes. Without bytecode files, each would compile the library again.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n 2 --durations=20

.PHONY: demo test checks tests test-fast lanes test-slow test-oldest docs bench clean

# The commands that the README shows. Repeats and methods are fixed, so the answers do not depend on
# the speed of the machine.
DEMO := --methods lda,rca --without trees --repeats 5 -q
demo: $(VENV)/.app
	@rm -f clothes.html digits.html wine.html
	@echo "Comparing distances on three built-in datasets (about a minute) ..."
	@$(BIN)/nearfar compare clothes $(DEMO) -o clothes.html --open
	@$(BIN)/nearfar compare digits $(DEMO) -o digits.html
	@$(BIN)/nearfar compare wine $(DEMO) -o wine.html
	@echo "Report of the first comparison: $(CURDIR)/clothes.html"

# The checks need one core for less than a minute and run at the same time as the tests. Their output is
# shown when they end and, after a failure, again at the end.
test: $(VENV)/.test
	@$(MAKE) --no-print-directory -k -j 2 checks tests; failed=$$?; test $$failed = 0 \
	  || { echo "== make test failed: see the tests above, and linters, types and imports:"; \
	       cat $(CHECKED); }; exit $$failed

CHECKED := $(VENV)/checks.log
checks: $(VENV)/.test
	@{ $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports \
	  && echo "Linters, types and imports: all passed."; } > $(CHECKED) 2>&1; found=$$?; \
	  cat $(CHECKED); exit $$found

tests: $(VENV)/.test
	$(PYTEST) -m "not slow"

FAST := not (slow or browser or process or twins)
test-fast: $(VENV)/.test
	$(PYTEST) -m "$(FAST) and not lengthy" tests

# Measure which tests are too long for test-fast, on a quiet machine, and write tests/lengthy.txt.
lanes: $(VENV)/.test
	NEARFAR_LANES=1 $(PYTEST) -m "$(FAST)" tests

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -m slow --durations=0

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/.test
	$(BIN)/python benchmarks/foundation.py

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "nearfar needs Python 3.11 or newer: make PYTHON=python3.12"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.app: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[app]'
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[ann]' \
	  || echo "faiss-cpu has no wheel for this machine. Its tests are skipped."
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[fast]' \
	  || echo "numba has no wheel for this machine. Its tests are skipped."
	@touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[docs]'
	@touch $@

# These versions must equal the lower bounds in pyproject.toml; a test compares them.
OLDEST := numpy==1.26.4 scipy==1.12.0 scikit-learn==1.6.0 pandas==2.2.0 lazy_loader==0.4 pyarrow==15.0.0 skops==0.12.0 dask==2024.8.0 distributed==2024.8.0
test-oldest: $(VENV)-oldest/.test
	$(ONE_THREAD) $(VENV)-oldest/bin/python -m pytest -n 2 -m "not slow"

$(VENV)-oldest/.test: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install -q --disable-pip-version-check -e '.[test]' $(OLDEST)
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-oldest docs/_build docs/gallery docs/api/generated
