# make test          runs the tests
# make soak          runs long tests, and all tests again on Debian's PostgreSQL
# make failed        runs the tests that failed in the last run once more
# make chaos         injects faults into a whole cluster in network namespaces, for hours
# make chaos-quick   does the same in under five minutes
# make ha            kills the primary of the cluster of docs/high-availability.md, under load, for five minutes
# make ha-quick      kills it three times, in two to three minutes
# make check         checks format, lint, types and import order
# make docs          builds the documentation site into build/site and the man pages into build/man
.PHONY: pictures test soak failed chaos chaos-quick ha ha-quick check docs format migrations messages schema access conformance lock licences packages

PY = .venv/bin/python

test: .venv/requirements-dev.lock packages
	$(PY) -m pytest -n 4 --dist worksteal -m "not soak and not debian" $(ARGS)

soak: .venv/requirements-dev.lock packages
	@scripts/opensearch >/dev/null
	$(PY) -m pytest -n 4 --dist worksteal -m "soak or debian" $(ARGS)

# Runs the tests that failed in the last run once more, one after the other, without a worker.
failed: .venv/requirements-dev.lock
	$(PY) -m pytest --last-failed --last-failed-no-failures none $(ARGS)

# Needs root and iproute2; docs/chaos.md explains the table. ARGS="--seed 7" repeats a run.
chaos: .venv/requirements-dev.lock packages
	PYTHONPATH=tests $(PY) -m chaos --faults 200 $(ARGS)

chaos-quick: .venv/requirements-dev.lock packages
	PYTHONPATH=tests $(PY) -m chaos --faults 12 --minutes 3.2 --seed 17 $(ARGS)

# Needs root, iproute2, patroni, etcd-server, etcd-client, haproxy and postgresql-15. ARGS="--kills partition" chooses.
ha: .venv/requirements-dev.lock packages
	@scripts/packages ha
	PYTHONPATH=tests $(PY) -m ha $(ARGS)

ha-quick: .venv/requirements-dev.lock packages
	@scripts/packages ha
	PYTHONPATH=tests $(PY) -m ha --bounded --kills processes,machine,partition --seed 5 $(ARGS)

check: .venv/requirements-dev.lock
	$(PY) -m ruff format --check
	$(PY) -m ruff check
	$(PY) -m mypy
	.venv/bin/lint-imports

# Fails on a broken link, a missing anchor or a page without a place in the navigation.
docs: .venv/requirements-dev.lock
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
	$(PY) scripts/man_pages.py

format: .venv/requirements-dev.lock
	$(PY) -m ruff format
	$(PY) -m ruff check --fix

# Writes the dbmate migrations of each schema from its files in tables/ and functions/; --remove in ARGS also drops.
migrations: .venv/requirements-dev.lock
	$(PY) scripts/migrations.py $(ARGS)

# Writes the fields of the messages between components, which later releases must understand.
messages: .venv/requirements-dev.lock
	$(PY) scripts/message_fields.py

# Writes schema.sql, which tests compare with the migrations.
schema: .venv/requirements-dev.lock
	scripts/schema

# Writes the page that lists which token may call which endpoint.
access: .venv/requirements-dev.lock
	$(PY) scripts/access_table.py >docs/access.md

# Writes the page that lists every statement of the seed documents with its tests.
conformance: .venv/requirements-dev.lock
	$(PY) scripts/conformance.py >docs/conformance.md

lock: .venv/requirements-dev.lock
	scripts/lock

# Writes the page of dependencies and their licences from the installed packages.
licences: .venv/requirements-dev.lock
	$(PY) scripts/licences.py >docs/licences.md

# Writes the pictures of README and of docs/console.md: a recording of the terminal, and screenshots.
pictures: .venv/requirements-dev.lock
	$(PY) scripts/pictures.py
	PYTHONPATH=tests $(PY) scripts/console_pictures.py

# Installs what the tests use in addition: Debian packages, a corpus of feeds and an S3 server; skipped if it is not available.
packages: .venv/requirements-dev.lock
	@scripts/packages
	@scripts/corpus
	@scripts/s3-server

.venv/requirements-dev.lock: requirements-dev.lock pyproject.toml
	@scripts/setup requirements-dev.lock
	@touch $@
