# Every target sets up what it needs: a virtual environment in .venv and the package, compiled if
# there is a C compiler. Choose the interpreter with PYTHON=python3.12 make test.

# Keep bytecode even if the shell disables it: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt
# uv takes a fifth of pip's time. pip is the fallback where only pip is configured for the network.
install = VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --constraint constraints.txt $(1) || $(PIP) $(1)
SOURCES := $(shell find src -name '*.py') setup.py pyproject.toml
# More workers than cores: tests mostly wait for disks and servers.
PYTEST := $(BIN)/python -m pytest
PARALLEL := --numprocesses 3 --dist loadfile --no-loadscope-reorder
comma := ,
BENCHMARKS := $(patsubst benchmarks/%.py,bench-%,$(filter-out benchmarks/harness.py,$(wildcard benchmarks/*.py)))

# Frameworks whose requirements conflict with the others have an environment of their own.
SEPARATE := adk crewai

.PHONY: demo serve test checks coverage browser lint test-compiled test-pure test-adapters $(SEPARATE:%=test-%) bench $(BENCHMARKS) faults frameworks soak fuzz audit packaging smoke docs clean

demo: $(VENV)/package
	@$(BIN)/python examples/demo.py

# Serves the sessions of the demo, or your own: STORE=sqlite:///agents.db make serve
serve: $(VENV)/package
ifdef STORE
	@$(BIN)/holdfast serve --store '$(STORE)'
else
	@test -f build/demo/.holdfast/state.db \
		|| $(BIN)/holdfast demo --folder build/demo > /dev/null 2>&1 < /dev/null
	@$(BIN)/holdfast serve --store sqlite:///build/demo/.holdfast/state.db
endif

# The checks run beside the tests, one after the other: together they keep two cores busy.
test:
	@$(MAKE) --no-print-directory -j3 $(VENV)/tools $(VENV)/package browser
	@$(MAKE) --no-print-directory -j2 test-compiled checks

checks:
	@$(MAKE) --no-print-directory -j1 lint docs test-pure test-adapters

# The viewer's tests need Chromium, which is a system package.
browser:
	@if command -v chromium > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "installing chromium for the viewer's tests"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -qq -y --no-install-recommends chromium; } > /dev/null 2>&1 \
			|| echo "cannot install chromium; the viewer's tests are skipped"; \
	else \
		echo "chromium is missing and only root can install it; the viewer's tests are skipped"; \
	fi

# The same tests with line coverage. Takes more than twice as long.
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

# Known vulnerabilities of the pinned versions. Passes with a notice if the service cannot be reached.
audit: $(VENV)/tools
	@$(BIN)/python -m tools.audit

# Install every extra, compiled and interpreted, on every Python found here. Takes 20 minutes.
packaging: $(VENV)/tools
	HOLDFAST_PACKAGING=all $(PYTEST) -q --timeout 900 tests/test_packaging.py

# Every benchmark on a small scale; `make test` runs the quick ones.
smoke: $(VENV)/tools $(VENV)/package
	HOLDFAST_BENCHMARKS=all $(PYTEST) -q tests/test_benchmarks.py

# The whole suite runs on the compiled package; tests of compiled modules also run interpreted.
test-compiled: $(VENV)/tools $(VENV)/package
	HOLDFAST_EXPECT=compiled $(PYTEST) -q $(PARALLEL)

test-pure: $(VENV)/tools
	@rm -rf build/pure && mkdir -p build/pure && cp -r src/holdfast build/pure/
	@find build/pure -name '*.so' -delete -o -name '*.pyd' -delete
	HOLDFAST_EXPECT=interpreted PYTHONPATH=build/pure $(PYTEST) -q \
		tests/state tests/values tests/log/test_timeline.py tests/log/test_event_log.py \
		tests/test_public_api.py

# The adapters of ADK and CrewAI, with their pages and examples.
test-adapters: $(SEPARATE:%=test-%)

$(SEPARATE:%=test-%): test-%: $(VENV)-%/installed $(VENV)/package
	HOLDFAST_EXPECT=compiled $(VENV)-$*/bin/python -m pytest -q tests/adapters/$* \
		tests/docs/test_examples.py -k "$*"

bench: $(BENCHMARKS)

$(BENCHMARKS): bench-%: $(VENV)/tools $(VENV)/package
	$(BIN)/python -m benchmarks.$*

# Long-running trials, see docs/trust.md.
faults: $(VENV)/tools $(VENV)/package
	$(BIN)/python -m trials.faults
	$(BIN)/python -m trials.kills
	$(BIN)/python -m trials.follow
	$(BIN)/python -m trials.hardship

# Kill and resume a scripted run of every framework.
KILLS ?= 50
FRAMEWORKS := $(filter-out __init__ __main__ scenario adk crewai_flow,$(basename $(notdir $(wildcard trials/frameworks/*.py))))
frameworks: $(VENV)/tools $(VENV)/package $(SEPARATE:%=$(VENV)-%/installed)
	for each in $(FRAMEWORKS); do $(BIN)/python -m trials.frameworks $$each --kills $(KILLS) || exit 1; done
	$(VENV)-adk/bin/python -m trials.frameworks adk --kills $(KILLS)
	$(VENV)-crewai/bin/python -m trials.frameworks crewai_flow --kills $(KILLS)

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
	rm -rf $(VENV) $(SEPARATE:%=$(VENV)-%) build dist .cache .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src -name '*.so' -delete
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/python: constraints.txt
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip uv
	@$(call install,--upgrade setuptools 'mypy[mypyc]')
	@touch $@

# An editable install: only changes to the package metadata need another one.
$(VENV)/installed: $(VENV)/python setup.py pyproject.toml
	@export HOLDFAST_COMPILE=0; $(call install,--no-build-isolation --editable '.[cli$(comma)server]')
	@touch $@

# Recompile when a source changes.
$(VENV)/compiled: $(VENV)/python $(SOURCES)
	@echo "building holdfast"
	@find src -name '*.so' -delete
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

$(VENV)/package: $(VENV)/installed $(VENV)/compiled
	@touch $@

$(SEPARATE:%=$(VENV)-%/installed): $(VENV)-%/installed: constraints-%.txt pyproject.toml $(VENV)/python
	@echo "creating $(VENV)-$*"
	@$(PYTHON) -m venv --clear $(VENV)-$*
	@export HOLDFAST_COMPILE=0 VIRTUAL_ENV=$(VENV)-$*; \
		{ $(BIN)/uv pip install --quiet --constraint $< setuptools && $(BIN)/uv pip install --quiet \
			--constraint $< --no-build-isolation --editable . --group $*; } \
		|| { $(VENV)-$*/bin/python -m pip install --quiet --upgrade pip setuptools --constraint $< && \
			$(VENV)-$*/bin/python -m pip install --quiet --constraint $< --no-build-isolation --editable . --group $*; }
	@touch $@

$(VENV)/tools: $(VENV)/installed
	@echo "installing development tools"
	@$(call install,--group dev)
	@$(BIN)/python -c "import a2a.server.tasks, agent_framework, agents, langgraph.graph, mcp, pydantic_ai, schemathesis, strands"  # compiled once, not by each worker
	@touch $@
