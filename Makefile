# Each target sets up what it needs in .venv, and does nothing twice: `make install` and `make demo` what a user needs
# (server, simulation, export), all others also what a developer needs (tests, checks, browser, notebooks).
# Experiments are in docs/results/experiments/Makefile, checks that are made now and then in scripts/Makefile.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin
INSTALLED := $(VENV)/.user
READY  := $(VENV)/.ready

# `docs` is a folder as well.
.PHONY: demo docs test nightly check bench peers scale chaos dst reference locks install clean

demo: $(INSTALLED)
	$(RUN)/edgefl demo

# tests/conftest.py says how many at a time. What is marked `night` is left to `make nightly`.
test: check
	$(RUN)/python -m pytest -q -n auto --dist worksteal -m 'not night'

# Everything: all tests, with new random draws, those of processes that are killed and of browsers included; then
# everything killed at every write, then simulated fleets.
nightly: check
	EDGEFL_NIGHT=1 $(RUN)/python -m pytest -q -n auto --dist worksteal
	$(MAKE) chaos dst

check: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

bench: $(READY)
	$(RUN)/python -m tools.bench transport
	$(RUN)/python -m tools.bench transport --secured

# Our rounds beside Flower's gRPC loop, which gets a venv of its own, and beside bare gRPC and paho; about five minutes.
# Writes docs/results/speed.md.
FLOWER := build/flower
peers: $(READY)
	test -x $(FLOWER)/bin/python || $(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -c 'import flwr, torch' 2>/dev/null || \
	    $(FLOWER)/bin/pip install --quiet --disable-pip-version-check flwr 'torch>=2.13,<2.14'
	$(RUN)/python -m tools.bench peers --flower $(FLOWER)/bin/python --report docs/results/speed.md

# 10 to 2,000 emulated devices, up to 50 M parameters, over a real broker; about ten minutes. Writes docs/results/scale.md
# and the constants that `edgefl plan` predicts with.
scale: $(READY)
	$(RUN)/edgefl bench scale --report docs/results/scale.md --constants edgefl/lab/planning/measured.json

# Kill everything, at every write and at random; cut networks, shift clocks; about a quarter of an hour. Writes docs/results/reliability.md.
chaos: $(READY)
	EDGEFL_CHAOS=1 $(RUN)/python -m pytest -q -s tests/chaos tests/coordinator/durable/test_checkpoint.py

# 2,000 simulated fleets in which everything goes wrong, and bugs planted for them to find; minutes. Writes docs/results/simulation.md.
dst: $(READY)
	$(RUN)/python -m tools.chaos --seeds 2000 --report docs/results/simulation.md
	$(RUN)/python -m tools.chaos_server --seeds 300 --workers 2
	$(RUN)/python -m tools.chaos_server --seeds 20 --workers 2 --plant all

# Write docs/reference.md again, from the models of run and agent files and the comments beside their fields.
reference: $(READY)
	$(RUN)/python scripts/reference.py

# The site of docs/, which needs no internet: build/site. Links and anchors that lead nowhere are errors.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(RUN)/python -m mkdocs build --strict --quiet
	@echo "look at it: $(RUN)/python -m http.server --directory build/site 8000, then http://127.0.0.1:8000"

# Write deploy/locks again, from pyproject.toml, constraints.txt and the package index; minutes.
locks: $(READY)
	$(RUN)/python scripts/lock.py

install: $(INSTALLED)

# pip, not uv: the CPU wheel of torch is found by pip alone on some machines.
PIP_INSTALL = $(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[coordinator,broker]'
	touch $@

$(READY): $(INSTALLED)
	$(PIP_INSTALL) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
