"""The version of the program and the exit codes of its commands."""

from importlib.metadata import version

__version__ = version("demopool")

EXIT_WRONG, EXIT_BAD_USE, EXIT_INTERRUPTED = 1, 2, 130
