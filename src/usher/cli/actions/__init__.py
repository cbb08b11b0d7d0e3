"""Implementation of the commands: each module serves the command module with the same first word."""
