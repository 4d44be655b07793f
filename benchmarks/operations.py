"""Every operation: time on all cases, the tracked values on the network cases."""

from .harness import operations
from .suite import suite

for _name in operations.OPERATIONS:
    _made = suite("operation", _name, __name__)
    globals()[_made.__name__] = _made
