# Two commands do everything, on any machine with make and Python 3.11 or newer:
#   make report    settle every claim, replay the proofs, cross-check them, draw the figures
#   make test      check the code and the notebooks
# Both install what they need into .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SITE_STAMP := $(VENV)/.site-installed
BUILD := build
CERTIFICATES := $(BUILD)/certificates

UV := $(shell command -v uv 2>/dev/null)
ifneq ($(UV),)
INSTALL_LOCK = $(UV) pip install --quiet --python $(BIN)/python
else
INSTALL_LOCK = $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

# The tools that build and check a release, apart from .venv.
RELEASE := $(BUILD)/release-venv

.DEFAULT_GOAL := help
.PHONY: help install typed release newest report site site-check paper test test-all test-times lint types notebooks notebooks-check bench calibrate attacks soundness fuzz mutants random-losses campaigns \
	golden random-audits survey implied trainers pages rocq lock format clean try try-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

install: $(STAMP) ## create .venv with the locked packages and klsym in it

# The lock holds the build backend too, so that klsym itself needs no further download.
# The last step writes matplotlib's font list: left to the first notebook that draws, the
# notice about it on stderr could end up among the outputs that nbval compares.
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("klsym needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@echo "Installing the packages of requirements.lock into $(VENV) (seconds with uv, a minute with pip)"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL_LOCK) --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q klsym study derivations
	@$(BIN)/python -c 'import matplotlib.font_manager'
	@touch $(STAMP)

report: install ## settle every claim, replay the proofs, cross-check, draw, and write it all up as one page
	@rm -rf $(CERTIFICATES) $(BUILD)/figures
	$(BIN)/klsym report -o $(BUILD)
	@echo "Replaying the certificates from their files"
	@$(BIN)/klsym check $(CERTIFICATES) > $(BUILD)/check.txt || { cat $(BUILD)/check.txt; exit 1; }
	@echo "Replayed from their files by the kernel alone: $$(grep -c ^ok $(BUILD)/check.txt) certificates ($(BUILD)/check.txt)"
	@echo
	@echo "Open $(BUILD)/report.html: every claim with its proof, its cross-check, the figures and the tables."

site: $(SITE_STAMP) ## build the documentation as build/site; it works offline
	PYTHONPATH=docs $(BIN)/python -m generate $(BUILD)/site-source $(BUILD)/site-extra
	@echo "Building the pages with Sphinx"
	KLSYM_DOCS=$(abspath docs) KLSYM_EXTRA=$(abspath $(BUILD)/site-extra) $(BIN)/python -m sphinx -b html -j 2 -E -q -W --keep-going \
		-d $(BUILD)/site-doctrees $(BUILD)/site-source $(BUILD)/site
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory try; \
	else mkdir -p $(BUILD)/site/try; echo "This page needs node: run make try." > $(BUILD)/site/try/index.html; fi
	@echo "Open $(BUILD)/site/index.html"

site-check: install ## links, formulas and widths of every page of build/site in headless Chromium, light and dark
	PYTHONPATH=docs $(BIN)/python -m generate.check $(BUILD)/site

$(SITE_STAMP): $(STAMP) docs/requirements.lock
	@$(INSTALL_LOCK) --require-hashes -r docs/requirements.lock
	@touch $@

$(RELEASE)/.installed: tests/support/release/requirements.lock
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

release: $(RELEASE)/.installed ## build wheel and sdist, check them, and try the wheel on each Python that is here
	PYTHONPATH=tests $(RELEASE)/bin/python -m support.release $(BUILD)/release

NEWEST := $(BUILD)/newest
newest: install ## test language, kernel and engine on the newest Python here, of every table one case in 20; no attacks
	@rm -rf $(NEWEST)
	@python=$$(PYTHONPATH=tests $(BIN)/python -m support.release.pythons); \
	if [ -z "$$python" ]; then echo "No Python here is newer than that of $(VENV), skipped"; exit 0; fi; \
	echo "Testing on $$python"; set -e; \
	"$$python" -m venv $(NEWEST); \
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-deps -r requirements.lock; \
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	$(NEWEST)/bin/python -m pytest -q -n 2 --dist loadfile --share 20 -o cache_dir=$(NEWEST)/pytest-cache \
		--ignore tests/kernel/attacks tests/language tests/kernel tests/engine

paper: install ## write the paper as PDF; needs pdflatex (Debian: texlive-latex-recommended)
	$(BIN)/klsym paper -o $(BUILD)/paper
	$(BIN)/klsym tables $$(sed -n 's/^.*\\kltable{\([a-z-]*\)}.*$$/\1/p' paper/*.tex) -o $(BUILD)/paper/tables
	$(BIN)/python -m klsym.paper.compile paper/klsym.tex $(BUILD)/paper
	$(BIN)/python -m klsym.paper.compile paper/klsym-twocolumn.tex $(BUILD)/paper

# One run for notebooks and tests, the longest notebook first, so that no processor waits; what a test has made stays
# for the others of its file (loadfile), and the cells of a notebook share a kernel.  Files start in this order, not by
# their number of tests: many short ones come last.  mypy runs beside it.
PYTEST = $(BIN)/pytest --nbval --nbval-current-env --nbval-cell-timeout 120 --nbval-sanitize-with notebooks/nbval.cfg -n auto --dist loadfile --no-loadscope-reorder \
	notebooks/08-experiments.ipynb notebooks tests klsym

# As klsym is installed: what stands beside the library is a package of it (klsym.study is study/).
TYPED := $(BUILD)/typed/klsym
typed:
	@rm -rf $(TYPED) && mkdir -p $(TYPED)
	@ln -s $(CURDIR)/klsym/* $(CURDIR)/study $(CURDIR)/derivations $(CURDIR)/experiments $(CURDIR)/paper $(TYPED)

test: lint typed ## lint, types, tests, doctests, and every notebook against its stored outputs; of slow tables and random tests a share
	@$(BIN)/mypy & types=$$!; $(PYTEST); tests=$$?; wait $$types && exit $$tests

test-all: lint typed ## the same with every case of a table, and random tests at full size
	@$(BIN)/mypy & types=$$!; KLSYM_TEST_ALL=1 $(PYTEST); tests=$$?; wait $$types && exit $$tests

test-times: typed ## run tests and notebooks, then print the CPU time of each file and of the slowest tests
	@rm -f $(BUILD)/cpu-times.jsonl
	@KLSYM_CPU_TIMES=$(BUILD)/cpu-times.jsonl PYTHONPATH=tests $(PYTEST) -q -p support.cpu_times; tests=$$?; \
	PYTHONPATH=tests $(BIN)/python -m support.cpu_times $(BUILD)/cpu-times.jsonl && exit $$tests

lint: install ## ruff
	$(BIN)/ruff check

types: install typed ## mypy, strict for the trusted base
	$(BIN)/mypy

notebooks: install ## run the notebooks and store their outputs in place
	$(BIN)/python -m klsym.study.write_up.questions docs/questions.md notebooks/14-questions-people-asked.ipynb
	$(BIN)/python -m klsym.study.write_up.gallery notebooks/17-losses-of-trainers.ipynb
	$(BIN)/python -m klsym.study.write_up.codes docs/codes.md
	$(BIN)/python -m klsym.study.write_up.measured_trainers docs/examples/measure docs/reference/measured-trainers.md
	$(BIN)/python notebooks/regenerate.py
	$(BIN)/python notebooks/readme_figure.py

notebooks-check: install ## fail if running the notebooks again would change a byte
	$(BIN)/python notebooks/regenerate.py --check
	$(BIN)/python notebooks/readme_figure.py --check

bench: install ## time the engine, the sampling and the experiments; store the ratios of this release
	$(BIN)/python benchmarks/ratios.py
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/verdicts.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/sequences.py
	$(BIN)/python benchmarks/any_length.py
	$(BIN)/python benchmarks/figures_loop.py

calibrate: install ## measure over many seeds that error rates are what they say
	$(BIN)/python benchmarks/calibration.py

attacks: install ## attack the kernel with random certificates and with true ones changed at random, judged by a literal oracle
	PYTHONPATH=tests $(BIN)/python -m support.attacks --count 20000 --seed 1
	PYTHONPATH=tests $(BIN)/python -m support.campaigns.mutated_certificates --count 20000

soundness: install ## 100,000 random statements, half of them false, through engine, kernel, oracle and verified checker
	$(BIN)/python benchmarks/soundness.py --count 100000

fuzz: install ## a million inputs for the parser, the certificate reader, the audit's loader and the JSON reader
	PYTHONPATH=tests $(BIN)/python -m support.campaigns.fuzzing --count 1000000

mutants: install ## change the trusted base line by line; the kernel's tests must notice each change
	PYTHONPATH=tests $(BIN)/python -m support.campaigns.mutants --jobs 2

random-losses: install ## 20,000 random losses in all settings, 10,000 that name their sums, 2,000 with discounts, 3,000 with clamps and a third policy, 5,000 with masks, critics and cut samplers, 3,000 of new methods, 3,000 with detached functions, against the literal oracle
	$(BIN)/python benchmarks/random_losses.py anywhere --count 20000
	$(BIN)/python benchmarks/random_losses.py sums --count 10000
	$(BIN)/python benchmarks/random_losses.py discounted --count 2000
	$(BIN)/python benchmarks/random_losses.py clamped --count 3000
	$(BIN)/python benchmarks/random_losses.py shipped --count 5000
	$(BIN)/python benchmarks/random_losses.py methods --count 3000
	$(BIN)/python benchmarks/random_losses.py detached --count 3000
	$(BIN)/python benchmarks/random_losses.py tokens --count 10000

campaigns: test-all attacks soundness fuzz mutants random-losses pages ## all of these at full size, for a release: hours

golden: install ## answer the 2,000 losses of the golden corpus again, list each difference that is not intended
	PYTHONPATH=tests $(BIN)/python -m support.golden $(GOLDEN_FLAGS)
	PYTHONPATH=tests $(BIN)/python -m support.golden.printed $(filter --write,$(GOLDEN_FLAGS))

pages: install ## write docs/trust.md and docs/benchmarks.md from what the verified checker, the campaigns and make bench stored, and docs/sources.md
	$(BIN)/python benchmarks/pages.py
	$(BIN)/python -m klsym.study.write_up.source_statements docs/sources.md

implied: install ## the objectives of 1,000 random c(r) against floats that share nothing with klsym
	$(BIN)/python benchmarks/implied_objectives.py --count 1000

trainers: install ## settle the losses of the gallery of trainers again, and judge each by enumeration and by autograd (needs torch)
	$(BIN)/python -m klsym.study.tables.trainers --check
	$(BIN)/python benchmarks/trainers.py

rocq: install ## check the certificates with the checker that Rocq has proved sound (Debian: coq libcoq-coquelicot)
	@command -v coqc >/dev/null || { $(BIN)/python rocq/check.py $(BUILD)/rocq; exit 1; }
	@rm -rf $(BUILD)/rocq
	$(BIN)/klsym export --rocq $(BUILD)/rocq
	$(BIN)/python rocq/check.py $(BUILD)/rocq
	@$(BIN)/python -m klsym.study.rocq.accepted $(BUILD)/rocq

# Node packages: the lock names no registry.  Pyodide is Python for browsers, playwright-core drives Chromium.
web/node_modules: web/package.json web/package-lock.json
	@command -v npm >/dev/null || { echo "the page needs node 20 or newer with npm (Debian: nodejs npm)" >&2; exit 1; }
	cd web && npm ci --no-audit --no-fund --loglevel=error
	@touch web/node_modules

TRY := $(BUILD)/site/try/files.json
try: $(TRY) ## build the page that runs klsym in the browser, build/site/try (needs node); make site builds it, too

$(TRY): $(STAMP) web/node_modules $(shell find klsym study web -type f -not -path '*/node_modules/*' -not -name '*.pyc')
	@echo "Building the page that runs klsym in the browser"
	$(BIN)/python web/modules.py $(BUILD)/try/modules.json
	node web/build_bundle.mjs $(BUILD)/try/modules.json "$$($(BIN)/python -c 'import sympy; print(sympy.__path__[0])')/.." $(BUILD)/site/try

try-check: try ## check that page in headless Chromium against the answers of the command line
	$(BIN)/python web/tests/native.py > $(BUILD)/try/native.json
	node --test --test-reporter=spec web/tests/try.test.mjs

random-audits: install ## 1,000 random PyTorch functions audited, 2,000 random losses against autograd (needs torch)
	$(BIN)/python benchmarks/random_audits.py --count 1000
	PYTHONPATH=tests $(BIN)/python -m support.judges.autograd_judge --count 1000

survey: install ## download released packages, audit their KLs and whole losses, say what has changed (needs torch)
	$(BIN)/python benchmarks/survey.py $(SURVEY_FLAGS)
	$(BIN)/python benchmarks/whole_functions.py $(SURVEY_FLAGS)

# Keeps the pinned versions that still fit; `make lock LOCK_FLAGS=--upgrade` takes the newest.
# Universal, hence one lock for all systems and Pythons; no index is named in it.
LOCK = uv pip compile --python-version 3.11 --universal --fork-strategy fewest --generate-hashes \
	--no-emit-index-url --no-annotate --no-header --quiet $(LOCK_FLAGS)

lock: ## remake requirements.lock, docs/requirements.lock and that of the release tools (needs uv)
	$(LOCK) pyproject.toml --extra report --extra notebook --extra dev --output-file requirements.lock
	$(LOCK) docs/requirements.in --constraint requirements.lock --output-file docs/requirements.lock
	$(LOCK) tests/support/release/requirements.in --constraint requirements.lock --output-file tests/support/release/requirements.lock

format: install ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove builds and caches, keep .venv
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -path ./$(VENV) -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) \
		-exec rm -rf {} +
