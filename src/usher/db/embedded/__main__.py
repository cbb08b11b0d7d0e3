"""The supervisor process: `python -m usher.db.embedded DATA PG_BIN PORT`."""

from usher.db.embedded.supervisor import main

main()
