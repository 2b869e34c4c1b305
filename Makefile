# Everything sets itself up: a virtual environment in .venv, then the package, compiled where a C
# compiler is at hand. PYTHON=python3.12 make test takes another interpreter.

# Bytecode is kept, whatever the shell says: hundreds of processes are started, and each would compile
# all that it imports.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt
SOURCES := $(shell find src -name '*.py') setup.py pyproject.toml
# A few at a time, a file at a time, as most of the time goes into waiting for disks and servers.
PYTEST := $(BIN)/python -m pytest
PARALLEL := --numprocesses 3 --dist loadfile --no-loadscope-reorder
BENCHMARKS := $(patsubst benchmarks/%.py,bench-%,$(filter-out benchmarks/harness.py,$(wildcard benchmarks/*.py)))

.PHONY: demo serve test coverage browser lint test-compiled test-pure bench $(BENCHMARKS) faults soak fuzz audit packaging docs clean

demo: $(VENV)/package
	@$(BIN)/python examples/demo.py

# STORE=sqlite:///agents.db make serve looks at one's own; without it, at the demo's sessions.
serve: $(VENV)/package
ifdef STORE
	@$(BIN)/holdfast serve --store '$(STORE)'
else
	@test -f build/demo/.holdfast/state.db \
		|| $(BIN)/holdfast demo --folder build/demo > /dev/null 2>&1 < /dev/null
	@$(BIN)/holdfast serve --store sqlite:///build/demo/.holdfast/state.db
endif

# Two or three things at a time, as each has stretches in which it needs one core or none.
test:
	@$(MAKE) --no-print-directory -j3 $(VENV)/tools $(VENV)/package browser
	@$(MAKE) --no-print-directory -j2 test-compiled lint
	@$(MAKE) --no-print-directory -j2 test-pure docs

# The viewer is tested in a real browser, which comes with the system and not from PyPI.
browser:
	@if command -v chromium > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "installing chromium for the viewer's tests"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -qq -y --no-install-recommends chromium; } > /dev/null 2>&1 \
			|| echo "chromium could not be installed: the viewer's tests are skipped"; \
	else \
		echo "there is no chromium, and only root can install it: the viewer's tests are skipped"; \
	fi

# The same tests, and which lines they reach. It takes more than twice as long.
coverage: PYTEST := $(BIN)/coverage run -m pytest
coverage: $(VENV)/tools $(VENV)/package
	@rm -f .coverage*
	$(MAKE) test-compiled test-pure PYTEST="$(PYTEST)"
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

lint: $(VENV)/tools audit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Known vulnerabilities of the pinned versions. Where nobody can be asked it says so and goes on.
audit: $(VENV)/tools
	@$(BIN)/python -m tools.audit

# Every extra, compiled and interpreted, on every Python that is here, fetched by pip: 20 minutes.
packaging: $(VENV)/tools
	HOLDFAST_PACKAGING=all $(PYTEST) -q --timeout 900 tests/test_packaging.py

# The whole suite runs over the compiled package, and what is compiled once more interpreted.
test-compiled: $(VENV)/tools $(VENV)/package
	HOLDFAST_EXPECT=compiled $(PYTEST) -q $(PARALLEL)

test-pure: $(VENV)/tools
	@rm -rf build/pure && mkdir -p build/pure && cp -r src/holdfast build/pure/
	@find build/pure -name '*.so' -delete -o -name '*.pyd' -delete
	HOLDFAST_EXPECT=interpreted PYTHONPATH=build/pure $(PYTEST) -q $(PARALLEL) \
		tests/state tests/values tests/log/test_timeline.py tests/log/test_event_log.py \
		tests/test_public_api.py

bench: $(BENCHMARKS)

$(BENCHMARKS): bench-%: $(VENV)/tools $(VENV)/package
	$(BIN)/python -m benchmarks.$*

# Trials try to lose something, for as long as one likes: see docs/trust.md.
faults: $(VENV)/tools $(VENV)/package
	$(BIN)/python -m trials.faults
	$(BIN)/python -m trials.kills
	$(BIN)/python -m trials.hardship

SECONDS ?= 60
soak: $(VENV)/tools $(VENV)/package
	$(BIN)/python -m trials.soak --seconds $(SECONDS)
	$(BIN)/python -m trials.linearizable

fuzz: $(VENV)/tools $(VENV)/package
	$(BIN)/python -m trials.fuzz --seconds $(SECONDS)

# The site in build/site; a broken link or an unknown name in the API reference fails the build.
docs: $(VENV)/tools
	@mkdir -p build/reference
	@$(BIN)/typer holdfast.cli.main utils docs --name holdfast > build/reference/cli.md
	@$(BIN)/python -m tools.reference > build/reference/rest.md
	@$(BIN)/zensical build --clean --strict > build/docs.log 2>&1 || { cat build/docs.log; exit 1; }

clean:
	rm -rf $(VENV) build dist .cache .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src -name '*.so' -delete
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/python: constraints.txt
	@echo "setting up $(VENV), once"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip
	@$(PIP) --upgrade setuptools 'mypy[mypyc]'
	@touch $@

# The sources are used where they are, so that only what describes the package needs another install.
$(VENV)/installed: $(VENV)/python setup.py pyproject.toml
	@HOLDFAST_COMPILE=0 $(PIP) --no-build-isolation --editable '.[cli,server]'
	@touch $@

# Compiled anew whenever a source changes, so that what runs is what is written.
$(VENV)/compiled: $(VENV)/python $(SOURCES)
	@echo "building holdfast"
	@find src -name '*.so' -delete
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

$(VENV)/package: $(VENV)/installed $(VENV)/compiled
	@touch $@

$(VENV)/tools: $(VENV)/installed
	@echo "installing what development needs"
	@$(PIP) --group dev
	@touch $@
