# `make demo` and `make test` set up everything they need in .venv, and do nothing twice.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test check bench chaos soak install clean

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

install: $(READY)

# pip, not uv: the CPU wheel of torch is found by pip alone on some machines.
$(READY): pyproject.toml constraints.txt
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
