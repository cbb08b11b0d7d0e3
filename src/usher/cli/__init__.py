"""The `usher` command: data on stdout, messages on stderr, and an exit code.

`commands` has the click commands (arguments, options, help) and `actions` their implementation. A command imports its
actions when it runs, so that `usher version` and `usher --help` stay fast.
"""
