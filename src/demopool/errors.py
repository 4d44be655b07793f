"""The closed set of exceptions. Each message is one sentence a user can act on."""


class DemopoolError(Exception):
    """Base of everything demopool raises on purpose."""


class InvalidInput(DemopoolError, ValueError):
    """An argument is wrong: the message names it, what was given and what is accepted."""


class BackendUnavailable(DemopoolError):
    """A backend was asked for by name and cannot be used here."""

    def __init__(self, backend: str, reason: str, install: str = "") -> None:
        self.backend = backend
        self.reason = reason
        self.install = install
        advice = f" Install it with: {install}" if install else ""
        super().__init__(f"{backend} is not available: {reason}.{advice}")


class Unsupported(DemopoolError):
    """A valid request outside the domain of a route, or a hole in the capability table."""

    def __init__(self, what: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{what} is not supported: {reason}.")


class Unfinished(DemopoolError):
    """A dataset was not pooled to its end: what was finished stays, and the same call goes on."""
