"""The commands: arguments, options and help. The implementation is in the module of the same name in actions."""
