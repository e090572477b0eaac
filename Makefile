# `make demo` and `make test` set up everything they need in .venv, and do nothing twice.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test check bench chaos soak size wheels pi-emulated experiments install clean

demo: $(READY)
	$(RUN)/edgefl demo

test: check
	$(RUN)/python -m pytest -q

check: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

bench: $(READY)
	$(RUN)/edgefl bench transport

# Kill everything, at every write and at random; about a quarter of an hour. Writes docs/results/reliability.md.
chaos: $(READY)
	EDGEFL_CHAOS=1 $(RUN)/python -m pytest -q -s tests/chaos tests/test_checkpoint.py

# 220 devices, 300 rounds: does the coordinator grow?
soak: $(READY)
	EDGEFL_SOAK=1 $(RUN)/python -m pytest -q -s tests/chaos/test_soak.py

# What the base package takes on a device's disk, in a fresh venv.
size: $(READY)
	$(RUN)/python scripts/installed_size.py

# Ask the package index for aarch64 wheels of everything a device needs, Python 3.10 to 3.13.
wheels: $(READY)
	EDGEFL_INDEX=1 $(RUN)/python -m pytest -q tests/test_arm_wheels.py

# A training step on an emulated Cortex-A72, with real aarch64 wheels; needs qemu-user.
pi-emulated: $(READY)
	deploy/pi-emulated/run.sh $(RUN)/python

install: $(READY)

# pip, not uv: the CPU wheel of torch is found by pip alone on some machines.
$(READY): pyproject.toml constraints.txt
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
