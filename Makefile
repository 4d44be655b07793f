# `make help` lists what there is. Everything runs in .venv, which is made when it is needed.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
EXTRAS := torch,numba,report,bench,gpu-proof,docs,dev
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# A strict editable install links file by file, so it is repeated when a file comes or goes.
EDITABLE := --no-build-isolation --config-settings editable_mode=strict --editable
SOURCES := find src reference implementations -type f ! -name '*.pyc'

# Backends that must be usable here: a skip cannot hide a broken install.
export DEMOPOOL_REQUIRE_BACKENDS ?= numpy:cpu,numba:cpu,torch:cpu,cupy:ptx,numba:ptx

.PHONY: help choose check bench browser report test test-all lint unit suite ratios matrix docs install clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

choose: install  ## which implementation should run on this machine? measures, decides, explains
	@$(BIN)/python -m demopool choose

check: install  ## is every backend of this machine right? (sets itself up; prints the matrix)
	@$(BIN)/python -m demopool backends
	@$(BIN)/python -m demopool check

# PROFILE=fast|regular|full, THREADS=8 for another number than asv.conf.json has, FRESH=1 to repeat.
bench: install  ## time and memory of this commit with asv, then a table (sets itself up, resumes)
	@$(BIN)/python -m tools.bench --profile $(or $(PROFILE),fast) \
	  $(if $(THREADS),--threads $(THREADS)) $(if $(FRESH),--fresh)

test: install lint unit suite  ## formatter, linter, types, all tests, the asv suite (sets itself up)

test-all: export DEMOPOOL_TEST_ALL := 1
test-all: test  ## the same, with every case of the searches instead of a draw

lint: install  ## formatter check, linter and type check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p demopool

# One thread: those of OpenBLAS and OpenMP spin while they wait, and on a busy machine a minute of
# tests becomes ten. What needs more threads in a test asks for them there.
unit: export OPENBLAS_NUM_THREADS ?= 1
unit: export OMP_NUM_THREADS ?= 1
unit: install  ## the tests alone; those that execute GPU code on the CPU by all cores
	$(BIN)/python -m pytest -m 'not browser and not emulated'
	$(BIN)/python -m pytest -m emulated --numprocesses auto --dist worksteal

suite: install  ## every benchmark class once, on its smallest case, so that the suite cannot rot
	@$(BIN)/python -m tools.check_suite
	$(BIN)/asv check

browser: install  ## the report in a headless Chromium: renders, no complaint, nothing from outside
	$(BIN)/python -m pytest -m browser tests/test_report_in_browser.py

report: install  ## everything that was measured here, as one page
	@$(BIN)/python -m demopool report

ratios: install  ## speed and memory against straightforward versions, as ratios in one run
	$(BIN)/python -m tools.ratios

matrix: install  ## write the support matrix into the documentation
	$(BIN)/python -m demopool backends --matrix --write docs/reference/support-matrix.md

docs: install  ## the documentation as HTML in build/docs; every warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going \
	  -d build/docs-cache docs build/docs
	@echo "build/docs/index.html"

install: .venv/ready  ## the environment, with every CPU backend and what proves GPU code
	@$(SOURCES) | sort > .venv/files.now; \
	cmp -s .venv/files.now .venv/files || \
	{ $(PIP) install --no-deps $(EDITABLE) . && mv .venv/files.now .venv/files; }

.venv/ready: pyproject.toml constraints.txt
	@echo "Setting up .venv (one to three minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) install --constraint constraints.txt setuptools
	@$(PIP) install --constraint constraints.txt $(EDITABLE) '.[$(EXTRAS)]'
	@$(SOURCES) | sort > .venv/files
	@touch $@

clean:  ## remove the environment and everything built
	rm -rf .venv .asv/env .asv/suite .asv/expected build *.egg-info src/*.egg-info asv.*.conf.json
