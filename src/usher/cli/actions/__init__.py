"""Implementation of the commands: each module serves the command module with the same first word.

A command imports this package only; a module is loaded when a command first uses it, so that `usher --help` stays fast.
"""

from importlib import import_module
from pathlib import Path

__all__ = tuple(sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py")))


def __getattr__(name: str) -> object:
    """Import a module of this package; `__init__.pyi` has the types."""
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
