# Every target sets up its own environment first, so that any of them can be the first command on a fresh machine.
# Needed: Python 3.11 or newer, make. ARGS="…" is handed on to the tool that a target runs.

PYTHON ?= $(or $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	command -v $(name) >/dev/null 2>&1 && $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $(name)))),python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed.stamp
TOOLS := $(VENV)/tools.stamp

# Tests run in several processes; those of a file stay together, because they share what they set up. The limit is the
# last net under a test that hangs: a busy machine must not come near it.
WORKERS ?= auto
# A process that dies ends the run: with another one in its place xdist may wait for ever at the end.
# Compiled tests are kept, whatever the environment says: otherwise each process compiles all of them anew.
PYTEST = env PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 \
	--max-worker-restart 0 --timeout 600 --durations 25

# Tests run on a set day, with the times of files, where there is a C compiler. RMQCTL_CLOCK chooses it: a MOMENT@ZONE,
# `any` for a drawn one, `real` for the real clock. The line that begins with "clock:" says how to repeat a run.
ON_A_DAY = $(BIN)/python -m tests.anyday.at_a_date $(PYTEST)
ON_ANY_DAY = RMQCTL_CLOCK="$${RMQCTL_CLOCK:-any}" $(ON_A_DAY)

.DEFAULT_GOAL := help
.PHONY: help install dev typing native wheels binary pyz deb sanitize demo test test-all test-ci test-any-day any-day coverage lint interop interop-ci bench docs messages schemas proof format clean

help:
	@echo "make install   the environment in .venv, with .venv/bin/rmqctl"
	@echo "make dev       the same with the tools that tests, make lint and make native need; they install them by themselves"
	@echo "make typing    the folder by which mypy and editors find every package as rmqctl.NAME"
	@echo "make native    compile store/native anew in place, after a change there"
	@echo "make wheels    wheels for Linux on x86_64 and aarch64, in dist/; the package ziglang compiles for both"
	@echo "make pyz       dist/rmqctl.pyz, one file for Python 3.11 to 3.14; make deb: a Debian package of the same"
	@echo "make binary    dist/rmqctl-x86_64-linux: one file that brings its own Python and C library"
	@echo "make sanitize  the tests of store/native with AddressSanitizer and UBSan, compiled beside the usual form"
	@echo "make demo      write a store, kill the writer, then info, recover, query, cat, clean"
	@echo "make test      the quick run: a sample of everything, in a few minutes, on a fixed day; it says what it leaves out"
	@echo "make test-all  every test but those of interop: all golden stores, all kill points, Spark"
	@echo "make test-ci   all kinds of tests; of many golden stores or kill points of one test a twelfth, drawn; what CI runs"
	@echo "make any-day   every verb by a clock that is set: month ends, 29 February, 2038 and more, in four time zones"
	@echo "make test-any-day  the quick run on a day drawn from a whole year; it prints how to repeat that day"
	@echo "make coverage  the lines and branches that the tests run, by room (ARGS=--quick: those of the quick run)"
	@echo "make lint      ruff (rules and format), mypy, banned words, and whether generated documents and translations are fresh"
	@echo "make interop   the tests that start the real RocketMQ (Maven and a JDK 11+; skipped with a reason without)"
	@echo "make interop-ci  those of interop that CI runs: every test, with a drawn twelfth of its versions and cases"
	@echo "make proof     power cuts, kills, errors of the disk, flipped bytes and more, at length; then a table"
	@echo "make bench     measure, against the real RocketMQ where that can be run; ARGS=--help names the themes"
	@echo "make docs      write the generated part of docs/ and formats/"
	@echo "make messages  add new texts to the translations in rmqctl/locale, and drop those that are gone"
	@echo "make format    let ruff format the sources and mend what it can"
	@echo "make clean     remove .venv and all caches"

# compiled here, because an environment may keep Python from caching what it compiles (PYTHONDONTWRITEBYTECODE)
install: $(STAMP)
	@test "$(RMQCTL_BUILD)" = plain || $(BIN)/python -c 'from rmqctl.store import native; raise SystemExit(not native.is_compiled())' \
		|| $(EDITABLE) --no-deps -e .
	@$(BIN)/python -m compileall -q $(wildcard formats store network pipeline rmqctl)
	@$(BIN)/rmqctl help --man $(VENV)/share/man/man1 2>/dev/null

dev: install $(TOOLS) typing

# rmqctl as mypy and editors see it: all of its packages in one folder
typing: $(STAMP)
	@mkdir -p $(VENV)/typing/rmqctl
	@find $(VENV)/typing/rmqctl -type l -delete
	@ln -s $(CURDIR)/rmqctl/* $(CURDIR)/formats $(CURDIR)/store $(CURDIR)/network $(CURDIR)/pipeline $(VENV)/typing/rmqctl/
	@echo $(CURDIR)/$(VENV)/typing > $$(echo $(VENV)/lib/python*/site-packages)/rmqctl_typing.pth

# editable_mode=compat: a plain path entry, where the default is an import hook that every start of rmqctl waits for
EDITABLE = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --config-settings editable_mode=compat
EXTRAS ?= fast,grpc,mcp,remote,report,spark,sql,tui,watch

$(STAMP): pyproject.toml constraints.txt setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: rmqctl needs Python 3.11 or newer, and '$(PYTHON)' is not." >&2; \
		echo "      Install one (Debian: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "make: this Python cannot make environments: its module ensurepip is missing." >&2; \
		echo "      On Debian and Ubuntu: apt-get install python$$version-venv    (as root), then run make again." >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(EDITABLE) -e '.$(if $(EXTRAS),[$(EXTRAS)])'
	@touch $@

# the tools alone: what installs the project compiles it again
$(TOOLS): $(STAMP)
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"], sep="\n")' > $(VENV)/tools.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $(VENV)/tools.txt
	@touch $@

native: $(TOOLS)
	@$(BIN)/python setup.py -q build_ext --inplace

# one wheel of each machine for every Python from 3.11 on, one more for each Python without GIL that is here
MACHINES ?= x86_64-linux-gnu.2.17 aarch64-linux-gnu.2.17
PYTHONS ?= $(BIN)/python $(foreach name,python3.14t python3.13t,$(shell command -v $(name)))

wheels: install
	set -e; for machine in $(MACHINES); do for python in $(PYTHONS); do rm -rf build; \
		RMQCTL_BUILD=$$machine $$python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .; done; done

# for all these versions of Python on this kind of machine
ONE_FILE_PYTHONS ?= 3.11 3.12 3.13 3.14

# one file with its own Python, for every Linux on this kind of machine; SIGN=KEY signs checksums with gpg
binary: install
	$(BIN)/python docs/deploy/build.py $@ -o dist/rmqctl-$$(uname -m)-linux $(if $(SIGN),--sign $(SIGN)) $(ARGS)

pyz deb: install
	$(BIN)/python docs/deploy/build.py $@ -o dist/rmqctl.$@ $(ONE_FILE_PYTHONS:%=--python %) $(if $(SIGN),--sign $(SIGN)) $(ARGS)

# Python's own allocator would hide what is read behind the end of an object
sanitize: dev
	RMQCTL_BUILD=sanitize $(BIN)/python setup.py -q build_ext --build-lib build/sanitized --build-temp build/sanitized/objects
	LD_PRELOAD="$$($${CC:-cc} -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		RMQCTL_NATIVE=build/sanitized/rmqctl/store/native $(PYTEST) -q tests/store/native $(ARGS)

demo: install
	$(BIN)/python -m rmqctl.demo $(ARGS)

test: dev
	$(ON_A_DAY) --dist loadfile --no-loadscope-reorder --quick $(ARGS)

test-all: dev
	$(ON_ANY_DAY) --dist loadfile --no-loadscope-reorder -m "not interop" $(ARGS)

# what CI runs: of the golden stores, kill points and cases of proofs that the quick run leaves out a twelfth, another one each time
test-ci: dev
	$(ON_ANY_DAY) --dist loadfile --no-loadscope-reorder -m "not interop" \
		--draw "$${RMQCTL_DRAW:-$$(date +%s)}" $(ARGS)

test-any-day: dev
	$(ON_ANY_DAY) --dist loadfile --no-loadscope-reorder --quick $(ARGS)

# needs libfaketime (Debian: apt-get install faketime)
any-day: dev
	$(BIN)/python -m tests.anyday $(ARGS)

# many threads that begin at once meet in the tracer, which then leaves one of them out; the table comes, whatever failed
coverage: dev
	rm -rf .coverage
	$(BIN)/coverage run -m pytest -n $(WORKERS) --maxprocesses 4 --max-worker-restart 0 --timeout 3600 --dist loadfile \
		--no-loadscope-reorder -W ignore::pytest.PytestUnraisableExceptionWarning -m "not interop" $(ARGS); \
		status=$$?; $(BIN)/python -m tests.proof.covered; covered=$$?; test $$status -eq 0 -a $$covered -eq 0

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.generated.layouts --check
	$(BIN)/python -m tests.generated.documents --check
	$(BIN)/python -m tests.generated.translations --check
	$(BIN)/python -m tests.vocabulary

# no other folder has any, and each worker would collect them all
INTEROP = $(if $(findstring tests/,$(ARGS)),,tests/interop)

# they wait for brokers half of their time
interop: WORKERS = 4
interop: dev
	RMQCTL_CLOCK="$${RMQCTL_CLOCK:-real}" $(ON_A_DAY) --dist loadfile --no-loadscope-reorder -m interop $(INTEROP) $(ARGS)

# what CI runs: of one test's versions and cases a twelfth, at least one, another one each time
# beside test-ci: with more of them, brokers miss the time-outs of their clients
interop-ci: WORKERS = 3
interop-ci: dev
	RMQCTL_CLOCK="$${RMQCTL_CLOCK:-real}" $(ON_A_DAY) --dist loadfile --no-loadscope-reorder -m interop $(INTEROP) \
		--draw "$${RMQCTL_DRAW:-$$(date +%s)}" $(ARGS)

bench: dev
	$(BIN)/python -m bench $(ARGS)

docs: dev
	$(BIN)/python -m tests.generated.layouts
	$(BIN)/python -m tests.generated.documents

# texts to translate, into rmqctl/locale; what is translated stays
messages: dev
	$(BIN)/python -m tests.generated.translations

# JSON Schemas of what --json prints; tests say when it is time
schemas: dev
	$(BIN)/python -m tests.schemas

proof: dev
	$(BIN)/python -m tests.proof $(ARGS)

format: $(TOOLS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist rmqctl.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
