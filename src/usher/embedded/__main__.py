"""The keeper's process: `python -m usher.embedded DATA PG_BIN PORT`."""

from usher.embedded.keeper import main

main()
