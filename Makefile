# `make help` lists the targets. Everything runs in .venv, which is created when needed.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
EXTRAS := torch,numba,triton,files,sklearn,scale,report,bench,gpu-proof,docs,dev
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# A strict editable install links file by file, so it is repeated when a file is added or removed.
EDITABLE := --no-build-isolation --config-settings editable_mode=strict --editable
SOURCES := find src reference implementations -type f ! -name '*.pyc'

# Backends that must be usable here, so that a skip cannot hide a broken installation.
export DEMOPOOL_REQUIRE_BACKENDS ?= numpy:cpu,numba:cpu,torch:cpu,cupy:ptx,numba:ptx,triton:interpreter

.PHONY: architecture help choose check bench bench-pr browser report test test-all lint unit suite ratios matrix docs study install clean counts plugins

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

choose: install  ## find the fastest implementation on this machine, and explain why
	@$(BIN)/python -m demopool choose

check: install  ## compare every backend of this machine with the reference (sets itself up)
	@$(BIN)/python -m demopool backends
	@$(BIN)/python -m demopool check

# PROFILE=fast|regular|full|gpu, COMMITS=HEAD~5..HEAD or NEW for more than this commit, FRESH=1 to
# repeat, THREADS=8 to override the number in asv.conf.json, MACHINE=name where hosts come and go,
# SHOW=1 for commands and an estimate.
bench: install  ## measure time and memory of this commit with asv (sets itself up, resumes)
	@$(BIN)/python -m tools.bench --profile $(or $(PROFILE),fast) \
	  $(if $(COMMITS),--commits '$(COMMITS)') $(if $(THREADS),--threads $(THREADS)) \
	  $(if $(MACHINE),--machine '$(MACHINE)') $(if $(FRESH),--fresh) $(if $(SHOW),--show)

# BENCH='Democratic.*vgg-b1' for other times than the fast profile's, ROUNDS=4 for more certainty,
# OUTPUT=table.md to write the table to a file as well.
bench-pr: install  ## compare the speed of HEAD with where it left BASE=origin/main, as Markdown
	@$(BIN)/python -m tools.bench_pr --base '$(or $(BASE),origin/main)' \
	  $(if $(BENCH),--bench '$(BENCH)') $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(OUTPUT),--output '$(OUTPUT)')

test: install lint unit suite  ## run formatter, linter, types, tests and asv suite (sets itself up)

test-all: export DEMOPOOL_TEST_ALL := 1
test-all: test  ## run the same, with every case of the searches instead of a sample

lint: install  ## run the formatter check, linter and type check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p demopool -p tools -p benchmarks -p studies

# One thread: threads of OpenBLAS and OpenMP spin while they wait, and on a busy machine a minute of
# tests becomes ten. Tests that need more threads set them.
unit: export OPENBLAS_NUM_THREADS ?= 1
unit: export OMP_NUM_THREADS ?= 1
unit: install  ## run the tests: on all cores, then one by one those that need the whole machine
	$(BIN)/python -m pytest -m 'not browser and not serial' --numprocesses auto --dist worksteal
	$(BIN)/python -m pytest -m serial

suite: install  ## run every benchmark class once, on its smallest case
	@$(BIN)/python -m tools.check_suite
	$(BIN)/asv check

# In a folder of its own, so that the other tests do not judge it too. XLA's optimisations make
# compiling long, and results are judged, not times.
plugins: export JAX_DISABLE_MOST_OPTIMIZATIONS ?= 1
plugins: install  ## install the plug-ins of this repository, and test them
	@$(PIP) install --constraint constraints.txt jax
	@rm -rf build/plugins
	@$(PIP) install --no-deps --no-build-isolation --target build/plugins ./plugins/demopool-jax
	@rm -rf plugins/demopool-jax/build plugins/demopool-jax/src/*.egg-info
	PYTHONPATH=build/plugins DEMOPOOL_REQUIRE_BACKENDS=jax:cpu OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest -c plugins/demopool-jax/pyproject.toml plugins/demopool-jax/tests \
	  --numprocesses auto --dist worksteal

browser: install  ## test the report in headless Chromium: no errors, no external resources
	$(BIN)/python -m pytest -m browser tests/test_report_in_browser.py

report: install  ## write all measurements of this machine to one page
	@$(BIN)/python -m demopool report

ratios: install  ## compare speed and memory with straightforward versions, in one run
	$(BIN)/python -m tools.ratios

counts: install  ## count instructions and cache misses with valgrind, where times are too noisy
	@$(BIN)/python -m tools.counts

# IMAGES=FOLDER for the images of FOLDER/class/*.jpg instead, PRECISION=bfloat16 for speed on a CPU
# with AMX.
study: install  ## judge the paper on real images: download, extract features, make the page
	@$(BIN)/python -m $(if $(IMAGES),studies.images '$(IMAGES)',studies.groceries) \
	  --precision $(or $(PRECISION),float32)

matrix: install  ## write the support matrix into the documentation
	$(BIN)/python -m demopool backends --matrix --write docs/reference/support-matrix.md

docs: install  ## the documentation as HTML in build/docs; every warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going \
	  -d build/docs-cache docs build/docs
	@echo "build/docs/index.html"

architecture: install  ## draw the packages and their imports for the documentation
	$(BIN)/python -m tools.import_graph docs/_static/architecture.svg

install: .venv/ready  ## set up the environment, with all CPU backends and GPU verification tools
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
	rm -rf .venv .asv/env .asv/suite .asv/pull-request .asv/confirm .asv/expected build *.egg-info src/*.egg-info asv.*.conf.json
