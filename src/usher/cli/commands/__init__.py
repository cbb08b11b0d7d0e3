"""Click commands: arguments, options and help texts. The implementation is in `usher.cli.actions`."""
