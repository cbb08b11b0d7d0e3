"""The face for hands: the `usher` command.

Comes in: words on a command line. Goes out: data on stdout, talk on stderr, an exit code. Central names: `main.main`,
`app.App`. Commands import what they need when they run, so that `usher version` stays quick.
"""
