# Each target sets up what it needs in .venv, and does nothing twice: `make install` and `make demo` what a user needs
# (server, simulation, export), all others also what a developer needs (tests, checks, browser, notebooks).
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin
INSTALLED := $(VENV)/.user
READY  := $(VENV)/.ready

# `docs` is a folder as well.
.PHONY: demo docs test nightly check bench peers scale chaos dst soak fuzz size wheels reference locks sbom oldest pi-emulated experiments
.PHONY: upcycled private mixture mixture-windows methods robustness robustness-choice asynchronous ray install clean

demo: $(INSTALLED)
	$(RUN)/edgefl demo

# tests/conftest.py says how many at a time.
test: check
	$(RUN)/python -m pytest -q -n auto --dist worksteal

# Everything that is slow or left to chance: the tests with new random draws, then everything killed, then simulated fleets.
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
	EDGEFL_CHAOS=1 $(RUN)/python -m pytest -q -s tests/chaos tests/coordinator/test_checkpoint.py

# 2,000 simulated fleets in which everything goes wrong, and bugs planted for them to find; minutes. Writes docs/results/simulation.md.
dst: $(READY)
	$(RUN)/python -m tools.chaos --seeds 2000 --report docs/results/simulation.md

# 220 devices, 300 rounds: does the coordinator grow?
soak: $(READY)
	EDGEFL_SOAK=1 $(RUN)/python -m pytest -q -s tests/chaos/test_soak.py

# Search for inputs that a reader does not survive; a finding is left in build/fuzz: put it into tests/chaos/corpus.
FUZZ_SECONDS ?= 60
fuzz: $(READY)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3,<4'
	mkdir -p build/fuzz
	$(RUN)/python tests/chaos/fuzz_atheris.py build/fuzz tests/chaos/corpus -max_total_time=$(FUZZ_SECONDS) \
	    -max_len=2000 -artifact_prefix=build/fuzz/ -print_final_stats=1

# Simulation on a local Ray cluster of three raylets, some of which are lost; about a minute and two GB of memory.
ray: $(READY)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	EDGEFL_RAY=1 $(RUN)/python -m pytest -q tests/sim/test_ray.py

# What the base package takes on a device's disk, in a fresh venv.
size: $(READY)
	$(RUN)/python scripts/installed_size.py

# Ask the package index for aarch64 wheels of everything a device needs, Python 3.10 to 3.13, and install a device's
# packages from their hashes alone.
wheels: $(READY)
	EDGEFL_INDEX=1 $(RUN)/python -m pytest -q tests/deploy/test_arm_wheels.py tests/deploy/test_package_locks.py

# Write docs/reference.md again, from the models of run and agent files and the comments beside their fields.
reference: $(READY)
	$(RUN)/python scripts/reference.py

# The site of docs/, which needs no internet: build/site. Links and anchors that lead nowhere are errors.
docs: $(READY)
	$(PIP_INSTALL) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(RUN)/python -m mkdocs build --strict --quiet
	@echo "look at it: $(RUN)/python -m http.server --directory build/site 8000, then http://127.0.0.1:8000"

# Networks of torchvision and Hugging Face, each trained on onnxruntime and in torch: docs/models.md; half an hour.
architectures: $(READY)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[architectures]'
	$(RUN)/python -W ignore scripts/architectures.py

# Write deploy/locks again, from pyproject.toml, constraints.txt and the package index; minutes.
locks: $(READY)
	$(RUN)/python scripts/lock.py

# What a device and a coordinator consist of, as CycloneDX, checked against its schema; the tool has a venv of its own.
SBOM := build/sbom
sbom:
	test -x $(SBOM)/venv/bin/cyclonedx-py || $(PYTHON) -m venv $(SBOM)/venv
	$(SBOM)/venv/bin/pip install --quiet --disable-pip-version-check 'cyclonedx-bom==7.5.0'
	for lock in device coordinator torch-cuda; do \
	  $(SBOM)/venv/bin/cyclonedx-py requirements deploy/locks/$$lock.txt --pyproject pyproject.toml --validate \
	    --output-reproducible -o $(SBOM)/edgefl-$$lock.cdx.json || exit 1; \
	done

# A device's half with the oldest versions that we allow, in a fresh venv; OLDEST=python3.12 for another Python.
OLDEST ?= $(shell python3.10 -c 1 2>/dev/null && echo python3.10 || echo $(PYTHON))
oldest: $(READY)
	$(RUN)/python scripts/oldest.py $(OLDEST)

# A training step on an emulated Cortex-A72, with real aarch64 wheels; needs qemu-user.
pi-emulated: $(READY)
	deploy/pi-emulated/run.sh $(RUN)/python

# Rounds that wait, that ask in reserve, and that wait for nobody, on an emulated fleet; some CPU minutes.
asynchronous: $(READY)
	OMP_NUM_THREADS=1 $(RUN)/edgefl compare docs/results/experiments/asynchronous.toml --seeds 3 --levels 0.8,0.9,0.95 \
	    --out runs/asynchronous --algorithms $(WAITS),$(RESERVE),$(BUFFERED)
	OMP_NUM_THREADS=1 $(RUN)/python docs/results/experiments/heard.py 0

WAITS := waits=fedavg:rounds.cohort=12
RESERVE := reserve=fedavg:rounds.cohort=12:rounds.over_select=1.5:run.rounds=150
BUFFERED := buffered=fedavg:rounds.mode=buffered:rounds.concurrency=12:rounds.buffer=4:run.rounds=300

# The papers' protocols, reduced; about one CPU hour. docs/results/algorithms.md says what came out.
E := docs/results/experiments
COMPARE := OMP_NUM_THREADS=1 PYTHONPATH=$(E) $(RUN)/edgefl compare
UPCYCLED := fedavg,fedprox.1=fedprox:mu=0.1,upcycled.1=upcycled:mu=0.1:lam=0.04:run.rounds=160
UPCYCLED_MORE := $(UPCYCLED),fedprox.5=fedprox:mu=0.5,upcycled.5=upcycled:mu=0.5:lam=0.21:run.rounds=160
experiments: $(READY)
	$(COMPARE) $(E)/fedgc.toml --seeds 3 --levels 0.5,0.8 --out runs/fedgc \
	    --algorithms neither=fedgc:cgc=false:sgc=false,cgc=fedgc:sgc=false,sgc=fedgc:cgc=false,both=fedgc
	$(COMPARE) $(E)/fedgc.toml --set run.rounds=20 --levels 0.5,0.8 --out runs/fedgc-cost \
	    --algorithms fedavg,fedgc,fedreg:weights=uniform:gamma=0.3:eta_s=0.2
	$(COMPARE) $(E)/flashback.toml --seeds 3 --levels 0.5,0.6,0.7 --out runs/flashback \
	    --algorithms fedavg,fedntd,flashback,finetune=fedavg+finetune:lr=0.05:max_epochs=3
	$(COMPARE) $(E)/fedreg.toml --seeds 5 --levels 0.5,0.8 --out runs/fedreg --algorithms fedavg,fedreg
	OMP_NUM_THREADS=1 PYTHONPATH=$(E) $(RUN)/python $(E)/loss_increase.py 0 1 2
	$(COMPARE) $(E)/gradma.toml --seeds 3 --levels 0.5,0.6,0.7 --out runs/gradma \
	    --algorithms fedavg,fedavgm:beta=0.5,mifa:weights=uniform,gradma-s=gradma:variant=server,gradma
	for d in 1 2 3 4; do for s in $$d $$(((d + 1) % 5)) $$(((d + 2) % 5)); do \
	  $(COMPARE) $(E)/gradma.toml --levels 0.5,0.6,0.7 --out runs/gradma-$$d-$$s \
	    --set task.data=sources:mnist_dirichlet_$$d --set run.seed=$$s \
	    --algorithms fedavg,mifa:weights=uniform,gradma-s=gradma:variant=server,gradma || exit 1; \
	done; done
	$(RUN)/python $(E)/pairs.py runs/gradma runs/gradma-?-?
	OMP_NUM_THREADS=1 PYTHONPATH=$(E) $(RUN)/python $(E)/gradma_reference.py 0 1 2
	$(COMPARE) $(E)/upcycled.toml --seeds 3 --algorithms $(UPCYCLED_MORE) --out runs/upcycled-iid
	$(COMPARE) $(E)/upcycled.toml --seeds 3 --algorithms $(UPCYCLED_MORE) --out runs/upcycled-00 \
	    --set 'task.data=synthetic(0,0,20,2)'
	$(COMPARE) $(E)/upcycled.toml --seeds 3 --algorithms $(UPCYCLED) --out runs/plain-iid --set task.loss=cross_entropy
	$(COMPARE) $(E)/upcycled.toml --seeds 3 --algorithms $(UPCYCLED) --out runs/plain-00 \
	    --set task.loss=cross_entropy --set 'task.data=synthetic(0,0,20,2)'
	for d in $$(seq 0 19); do \
	  $(COMPARE) $(E)/upcycled.toml --algorithms $(UPCYCLED_MORE) --out runs/upcycled-00-draw-$$d \
	    --set "task.data=synthetic(0,0,20,2,draw=$$d)" --set run.seed=$$d || exit 1; \
	done
	$(RUN)/python $(E)/draws.py $$(seq -f runs/upcycled-00-draw-%g 0 19)
	$(RUN)/python $(E)/rows.py runs/fedgc runs/fedgc-cost runs/flashback runs/fedreg runs/gradma

# Upcycled-FL on the sets it was published with, which are looked for in the data root; 216 runs, half a CPU hour at most.
PROX = fedprox$(1)=fedprox:mu=$(2),upcycled$(1)=upcycled:mu=$(2):lam=$(3):run.rounds=160
ALL_MU := fedavg,$(call PROX,.1,0.1,0.04),$(call PROX,.3,0.3,0.12),$(call PROX,.5,0.5,0.21),$(call PROX,1,1.0,0.43)
upcycled: $(READY)
	for share in 0.9 0.3; do for set in iid 00 55 11; do \
	  $(COMPARE) $(E)/upcycled.toml --seeds 3 --algorithms $(ALL_MU) --out runs/upcycled-$$set-$$share \
	    --set task.data=sources:upcycled_$$set --set fleet.stragglers=$$share || exit 1; \
	done; $(RUN)/python $(E)/authors_sets.py $$share; done

# The same, private, beside private FedProx: noise on the model, and a random tilt of the objective.
OUTPUT = privacy.mechanism=output:privacy.clip=10:privacy.delta=0.001:privacy.sigma
TILTED = privacy.mechanism=objective:privacy.delta=0.001:privacy.alpha
UP := upcycled:mu=0.1:lam=0.04
private: $(READY)
	for set in iid 00 55 11; do \
	  $(COMPARE) $(E)/private.toml --seeds 3 --out runs/private-output-$$set --set task.data=sources:upcycled_$$set \
	    --algorithms fedprox=fedprox:$(OUTPUT)=1.0,upcycled=$(UP):$(OUTPUT)=0.8,plain=$(UP) || exit 1; \
	  $(COMPARE) $(E)/private.toml --seeds 3 --out runs/private-objective-$$set \
	    --set task.data=sources:upcycled_$${set}_short --set task.loss=cross_entropy \
	    --algorithms fedprox=fedprox:$(TILTED)=10,upcycled=$(UP):$(TILTED)=20,plain=$(UP) || exit 1; \
	done
	for mechanism in output objective; do PYTHONPATH=$(E) $(RUN)/python $(E)/private.py $$mechanism iid 00 55 11; done

# Upcycled-FL with GradMA's memory beside the five papers' methods on UCI HAR by person. The rate of each is chosen on a
# fifth of the training data; only what was chosen is tested. `mixture-windows`: the same on raw windows with a small CNN.
WITH = $(UP):run.rounds=80
MIXED := fedavg,fedreg,upcycled=$(WITH),flashback=flashback:max_epochs=5,fedgc,gradma,gradma-s=gradma:variant=server
MIXED := $(MIXED),momentum=$(WITH)+momentum:beta=0.5,mixture=$(WITH)+memory
mixture: $(READY)
	OMP_NUM_THREADS=1 PYTHONPATH=$(E) $(RUN)/edgefl sweep $(E)/mixture.toml --algorithms $(MIXED) --grid lr=0.05,0.2,0.8 \
	    --seeds 3 --levels 0.7,0.8,0.85 --out runs/mixture

mixture-windows: $(READY)
	OMP_NUM_THREADS=1 PYTHONPATH=$(E) $(RUN)/edgefl sweep $(E)/mixture.toml --algorithms $(MIXED) --grid lr=0.05,0.2,0.8 \
	    --set task.data=uci_har --set task.model=sensor_cnn --seeds 3 --levels 0.7,0.8,0.85 --out runs/mixture-windows

# Models of one's own, whom to ask, and the coordinator's step, on the digits; every rate is chosen on validation data. It prints
# the tables of docs/results/methods.md, in ten CPU minutes, and goes on where it was stopped.
methods: $(READY)
	OMP_NUM_THREADS=1 $(RUN)/python $(E)/methods.py

# Attackers against every defence; a thousand runs on all processors, and it goes on where it was stopped.
# Writes docs/results/robustness.md.
robustness: $(READY)
	OMP_NUM_THREADS=1 PYTHONPATH=$(E) $(RUN)/python $(E)/robustness.py

# What guards.trust = "majority" means was chosen by this, on validation data and with other seeds; as long.
robustness-choice: $(READY)
	OMP_NUM_THREADS=1 PYTHONPATH=$(E) $(RUN)/python $(E)/robustness_choice.py

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
