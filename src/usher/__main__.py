"""Lets `python -m usher` be the command."""

from usher.cli.main import main

main()
