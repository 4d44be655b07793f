"""A transformer for scikit-learn: ``from demopool.sklearn import SecondOrderPooling``."""

from .errors import BackendUnavailable

try:
    from .pooling.transformer import SecondOrderPooling
except ModuleNotFoundError as missing:
    if missing.name != "sklearn":
        raise
    reason, install = "scikit-learn is not installed", "pip install '.[sklearn]' (in a clone)"
    raise BackendUnavailable("demopool.sklearn", reason, install) from None

__all__ = ["SecondOrderPooling"]
