"""The implementation of the commands, in a module of the same name."""
