# The two commands: `make demo` and `make test`. `make` alone lists the rest.

PYTHON ?= python3
# More options for every pip install, e.g. where to find another build of torch.
PIP_ARGS ?=
# More options for the demo (`make demo ARGS=--help` lists them) and for pytest.
ARGS ?=

VENV := .venv
VENV5 := .venv5
VENV_CLUSTER := .venv-cluster
VENV_ANDROID := .venv-android
COMMA := ,
# Exports that need no optimum, which has no place beside transformers 5.
EXPORT5 := $(addprefix tests/export/,check test_hub.py test_pipeline.py test_resuming.py \
  test_sources.py test_whole_exports.py backends/test_fused_backend.py)
INSTALLED := $(VENV)/.installed
INSTALLED5 := $(VENV5)/.installed
INSTALLED_CLUSTER := $(VENV_CLUSTER)/.installed
INSTALLED_ANDROID := $(VENV_ANDROID)/.installed

# As a single-quoted shell word, dollar signs and quotes kept.
quoted = '$(subst ','\'',$(value $(1)))'
DEMO_ARGS = $(if $(PROMPT),--prompt $(call quoted,PROMPT)) $(if $(filter-out 0,$(JSON)),--json) $(ARGS)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help venv demo test lint types test-fast test-models test-transformers5 test-cluster \
  android-demo test-android clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-18s %s\n", $$1, $$2}' Makefile

venv: $(INSTALLED) ## make .venv with everything in it

demo: $(INSTALLED) ## two real models write one text: PROMPT="...", JSON=1, ARGS="--help"
	@$(VENV)/bin/python -m bench.demo $(DEMO_ARGS)

test: lint types test-fast test-transformers5 test-cluster test-android test-models ## everything that must hold

lint: $(INSTALLED) ## ruff: rules and format
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(INSTALLED) ## mypy --strict
	$(VENV)/bin/mypy

test-fast: $(INSTALLED) ## tests that need no weights
	$(VENV)/bin/pytest -m "not models" $(ARGS)

# The first of these tests downloads and exports the pair, which takes minutes.
test-models: $(INSTALLED) ## tests on the real pair of models
	$(VENV)/bin/pytest -m models --timeout 900 $(ARGS)

test-transformers5: $(INSTALLED5) ## the server's models and the fused export on transformers 5
	$(VENV5)/bin/python -m pytest -m "not models" tests/server_app/target $(EXPORT5) $(ARGS)

test-cluster: $(INSTALLED_CLUSTER) ## two replicas of the server on Ray Serve
	$(VENV_CLUSTER)/bin/python -m pytest tests/server_app/cluster $(ARGS)

android-demo: $(INSTALLED) $(INSTALLED_ANDROID) ## the phone app in a browser, before a server with the real pair
	@$(VENV_ANDROID)/bin/python android_demo/browser.py --cosd $(VENV)/bin/cosd $(ARGS)

# The app's server runs in the other environment, as a process of its own.
test-android: $(INSTALLED) $(INSTALLED_ANDROID) ## types of the phone app's screen, the phone's versions, and the app in Chromium
	$(VENV_ANDROID)/bin/mypy android_demo/src android_demo/browser.py
	COSD_SERVER_PYTHON=$(CURDIR)/$(VENV)/bin/python $(VENV_ANDROID)/bin/python -m pytest tests/android_demo/browser $(ARGS)
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || { echo; \
	  echo "!! There is no Chromium here: THE PHONE APP'S SCREEN WAS NOT TESTED."; \
	  echo "!! On Debian: apt-get install chromium, then: make test-android"; echo; }

clean: ## remove environments, caches and builds; prepared models stay in COSD_HOME
	rm -rf $(VENV) $(VENV5) $(VENV_CLUSTER) $(VENV_ANDROID) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(1) folder, $(2) file of exact versions, $(3) and $(4) extras
define install
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
	  "$(PYTHON) is Python %d.%d and 3.11 or newer is needed; name another one with: make PYTHON=python3.12 $(MAKECMDGOALS)" % v[:2])'
	@test -x $(1)/bin/pip || { echo "Making $(1) ..."; $(PYTHON) -m venv $(1); } || \
	  { rm -rf $(1); echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing edge-cosd[$(3),$(4)] into $(1) with the versions of $(2) ..."
	@$(1)/bin/pip install $(PIP_ARGS) --no-input -c $(2) -e '.[$(3),$(4)]' || { echo >&2; \
	  echo "The install failed; pip says why above. It needs the network and about 3 GB of disk (more with a CUDA build of torch)." >&2; \
	  echo "Try again with: make $(MAKECMDGOALS)    or from scratch with: make clean $(MAKECMDGOALS)" >&2; exit 1; }
	@touch $@
endef

$(INSTALLED): pyproject.toml constraints/demo.txt
	$(call install,$(VENV),constraints/demo.txt,demo,dev)

$(INSTALLED5): pyproject.toml constraints/transformers5.txt
	$(call install,$(VENV5),constraints/transformers5.txt,server$(COMMA)export5,dev)

# Ray and what it needs on top of the other environment, so that torch is not installed again.
$(INSTALLED_CLUSTER): $(INSTALLED) constraints/cluster.txt
	@test -x $(VENV_CLUSTER)/bin/pip || $(VENV)/bin/python -m venv $(VENV_CLUSTER)
	@site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	  $(VENV)/bin/python -c "$$site" > "$$($(VENV_CLUSTER)/bin/python -c "$$site")/beneath.pth"
	@echo "Installing edge-cosd[cluster] into $(VENV_CLUSTER) with the versions of constraints/cluster.txt ..."
	@$(VENV_CLUSTER)/bin/pip install $(PIP_ARGS) --no-input -c constraints/cluster.txt -e '.[cluster]'
	@touch $@

# The SDK with the versions of a phone, Flet's web client, and what drives a browser.
$(INSTALLED_ANDROID): pyproject.toml constraints/android-demo.txt
	@test -x $(VENV_ANDROID)/bin/pip || $(PYTHON) -m venv $(VENV_ANDROID)
	@echo "Installing edge-cosd and Flet into $(VENV_ANDROID) with the versions of constraints/android-demo.txt ..."
	@$(VENV_ANDROID)/bin/pip install $(PIP_ARGS) --no-input -c constraints/android-demo.txt -e . \
	  'flet[web]' flet-secure-storage mypy playwright pytest pytest-asyncio pytest-timeout
	@touch $@
