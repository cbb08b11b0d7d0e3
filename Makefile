# make test   runs the tests; make soak   those that take long, and all again on Debian's PostgreSQL;
# make chaos   faults on a whole cluster in network namespaces, for hours; make chaos-quick   the same in under five minutes;
# make check   format, lint, types, import order.
.PHONY: test soak chaos chaos-quick check format migrations schema access conformance lock licences packages

PY = .venv/bin/python

test: .venv/requirements-dev.lock packages
	$(PY) -m pytest -n 3 --dist worksteal -m "not soak and not debian" $(ARGS)

soak: .venv/requirements-dev.lock packages
	$(PY) -m pytest -n 3 --dist worksteal -m "soak or debian" $(ARGS)

# Needs root and iproute2; docs/chaos.md says what the table means. ARGS="--seed 7" repeats a run.
chaos: .venv/requirements-dev.lock packages
	PYTHONPATH=tests $(PY) -m chaos --faults 200 $(ARGS)

chaos-quick: .venv/requirements-dev.lock packages
	PYTHONPATH=tests $(PY) -m chaos --faults 12 --minutes 3.2 --seed 17 $(ARGS)

check: .venv/requirements-dev.lock
	$(PY) -m ruff format --check
	$(PY) -m ruff check
	$(PY) -m mypy
	.venv/bin/lint-imports

format: .venv/requirements-dev.lock
	$(PY) -m ruff format
	$(PY) -m ruff check --fix

# The dbmate migration of each schema, from its files in tables/ and functions/.
migrations: .venv/requirements-dev.lock
	$(PY) scripts/migrations.py

# The picture of the tables that tests compare with the migrations.
schema: .venv/requirements-dev.lock
	scripts/schema

# The page that says which token may call what.
access: .venv/requirements-dev.lock
	$(PY) scripts/access_table.py >docs/access.md

# The page that lists every statement of the seed documents with its tests.
conformance: .venv/requirements-dev.lock
	$(PY) scripts/conformance.py >docs/conformance.md

lock: .venv/requirements-dev.lock
	scripts/lock

# The page of dependencies and their licences, from what is installed.
licences: .venv/requirements-dev.lock
	$(PY) scripts/licences.py >docs/licences.md

# What the tests use beside what is installed: programs of Debian's, a corpus of feeds; skipped where it cannot be had.
packages: .venv/requirements-dev.lock
	@scripts/packages
	@scripts/corpus

.venv/requirements-dev.lock: requirements-dev.lock pyproject.toml
	@scripts/setup requirements-dev.lock
	@touch $@
