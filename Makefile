# Two commands do everything on a machine with Python 3.11 or newer: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run test test-slow same fuzz reliability check install install-dev clean
.PHONY: background background-status background-stop background-pause background-continue

run: install
	$(BIN)/comad demo

test: install-dev check
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=15

test-slow: install-dev
	$(BIN)/python -m pytest -m slow

# Does every method compute what it did at the commit in tests/same/base.txt, bit by bit: `make same METHODS="ft owl"`.
same: install-dev
	$(BIN)/python tests/same/comparing.py $(METHODS)

# Attacks on every reader of files, guided by coverage where atheris can be installed: `make fuzz SECONDS=60`.
SECONDS ?= 60
fuzz: install-dev
	-$(PIP) install --quiet --constraint constraints.txt --editable '.[dev,battle,ant,fuzz]'
	PYTHONPATH=.:tests:tests/hostile $(BIN)/python tests/hostile/fuzz.py $(SECONDS)

# Everything that is promised, tried anew, slow tests included; writes the table of docs/reliability.md.
reliability: install-dev
	COMAD_RELIABILITY=docs/reliability.json $(BIN)/python -m pytest -m "promise"
	$(BIN)/python tests/reliability.py

# Long jobs at the lowest priority, one for each core, killed and started again at any time: background/jobs.toml lists them.
background: install
	$(BIN)/python -m background start
background-status background-stop background-pause background-continue: background-%: install
	$(BIN)/python -m background $*

check: install-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# A stamp per install, so that a second `make` starts at once and a changed requirement installs again.
install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.created:
	$(PYTHON) -c "import sys; sys.exit('comad needs Python 3.11 or newer, this is ' + sys.version) if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev,battle,ant]'
	touch $@

clean:
	rm -rf $(VENV) out build *.egg-info
