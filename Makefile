# Everything a developer runs. `make` alone lists the targets. Only Python 3.10+ is needed to start; constraints.txt pins
# versions that need 3.11.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# Nothing that is installed is compiled (PIP below): where Python may not keep what it compiled, every process does it anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
# Absolute, since some recipes run from another folder.
ABS_PY = $(abspath $(PY))
# Not compiled: Python compiles what is imported, which is a small part of what is installed.
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

# A stamp says which requirements were last installed, so that a second call does nothing.
BASE := $(VENV)/.installed-base
DEV  := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
NETS := $(VENV)/.installed-published

.PHONY: help venv demo docs test soak versions lint types compiled check-tests gpu gpu-rehearsal tree wheel bench published published-packages clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

# Python's own pip may be years old, and take half as long again.
$(PY):
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(BASE): pyproject.toml constraints.txt | $(PY)
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(PY)
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable '.[test,suite,report,integrations,ray,skypilot]'
	@touch $@ $(BASE)

$(DOCS): pyproject.toml constraints.txt | $(PY)
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable '.[docs]'
	@touch $@ $(BASE)

venv: $(DEV) ## the development environment, in .venv

demo: export PLACER_HOME := $(CURDIR)/.demo
demo: .demo/calibrated ## calibrate this machine quickly, then ask where a T4 would beat it on one small network
	$(PY) -m placer explain calibration/suite/conv1d.py:Conv1dRegressor --batch 512,84 --what-if T4
	$(PY) -m placer explain calibration/suite/conv1d.py:Conv1dRegressor --batch 32,84 --mode infer --what-if T4 --sweep batch=4:1024

.demo/calibrated: export PLACER_HOME := $(CURDIR)/.demo
.demo/calibrated: $(BASE)
	@mkdir -p $(@D)
	$(PY) -m placer calibrate --quick
	@touch $@

# mypy uses one core. On another, what the tests import is imported once: nothing that was installed is compiled yet, and
# both processes of the tests would compile all of it.
test: lint ## what CI runs first: lint, types of the built wheel, tests
	$(MAKE) --no-print-directory --jobs 2 types compiled
	$(MAKE) --no-print-directory check-tests

# A file that cannot be imported is told by check-tests, which says why.
compiled: $(DEV)
	-$(PY) -m pytest --collect-only -qq > /dev/null

lint: $(DEV) ## ruff, rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check --quiet .

# Static tools don't follow the mapping of calibration/ to placer.calibration, so the installed wheel is checked, and with
# it what a checkout has beside it.
types: wheel ## mypy, strict, on the built wheel and on a script of a user's
	rm -rf build/types
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --target build/types dist/torch_placer-*.whl
	cp -r calibration/lab build/types/placer/calibration/
	cd build/types && $(ABS_PY) -m mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache -p placer
	cd build/types && $(ABS_PY) -m mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache $(CURDIR)/tests/user_script.py

# Two processes share the files of tests. A part of them (PYTEST_ARGS) is sooner done by one process.
# OMP_WAIT_POLICY: threads that wait would spin on the core that the other process needs, and all take several times as long.
check-tests: $(DEV) ## pytest (PYTEST_ARGS="-k name" narrows it)
ifdef PYTEST_ARGS
	$(PY) -m pytest $(PYTEST_ARGS)
else
	OMP_WAIT_POLICY=PASSIVE $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder
endif

# PLACER_SOAK_SHARE=0.01 tries everything for a short time and writes no figures.
soak: $(DEV) ## what needs time or load: about an hour, on an idle machine; writes figures into docs/dev/reliability.md
	$(PY) -m pytest -m soak -p no:randomly --durations=0 $(PYTEST_ARGS)

# Not in CI: three environments of several GB. VERSIONS_ARGS="'oldest torch'" tries one of them.
versions: tree $(DEV) ## oldest and newest versions of torch and all that placer needs; writes docs/dev/versions.md
	$(PIP) uv
	cd $(TREE) && PYTHONPATH=$(TREE) $(ABS_PY) $(CURDIR)/tests/versions.py $(VERSIONS_ARGS)

# Strict: a broken link, or a name that the API reference cannot find, fails.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(DOCS) ## the documentation as a site, in build/site
	$(PY) -m mkdocs build --strict

wheel: $(DEV) ## the wheel, in dist/
	rm -rf build/lib build/bdist.* dist
	$(PY) -m build --wheel --no-isolation --outdir dist . > build.log 2>&1 || { cat build.log; exit 1; }
	@rm -f build.log

bench: $(DEV) ## predicted beside measured on this machine, for the networks of the quick suite
	$(PY) -m placer validate --suite quick

# torchvision asks for the newest torch and timm for torchvision; neither may replace the pinned torch.
$(NETS): $(DEV)
	$(PIP) pillow transformers
	$(PIP) --no-deps timm torchvision
	@touch $@

published-packages: $(NETS) ## torchvision, timm and transformers, which build the published networks

published: $(NETS) ## fit the networks that ship, of CPUs and GPUs, from calibration/lab/published/data
	$(PY) -m placer.calibration.lab.published.cpu_networks
	$(PY) -m placer.calibration.lab.published.fit

# A machine with an accelerator may have its own torch and no index to install from: the checkout is used as it is, through a
# folder of links in which calibration/ stands where the wheel puts it. There, any Python with torch will do:
# make gpu PYTHON=python3
GPU_PYTHON ?= $(if $(wildcard $(PY)),$(ABS_PY),$(PYTHON))
TREE := $(CURDIR)/build/tree

tree:
	rm -rf $(TREE)
	mkdir -p $(TREE)/placer
	ln -s $(CURDIR)/placer/* $(CURDIR)/calibration $(TREE)/placer/

gpu: export PYTHONPATH := $(TREE)
gpu: export PLACER_HOME := $(CURDIR)/build/gpu-home
gpu: tree ## on a machine with an accelerator: measure what it alone can tell, in 8.5 minutes, into calibration/records/
	$(GPU_PYTHON) $(CURDIR)/calibration/records/measure_gpu.py --folder $(CURDIR)/calibration/records $(GPU_ARGS)

gpu-rehearsal: export PYTHONPATH := $(TREE)
gpu-rehearsal: tree ## the same on a simulated accelerator, in about four minutes, into build/rehearsal
	rm -rf $(CURDIR)/build/rehearsal
	cd $(TREE) && $(GPU_PYTHON) $(CURDIR)/tests/simulated/rehearsal.py $(CURDIR)/build/rehearsal $(REHEARSAL_ARGS)

clean: ## remove what the other targets made, .venv excepted
	rm -rf build dist .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find placer calibration tests -name __pycache__ -type d -prune -exec rm -rf {} +
