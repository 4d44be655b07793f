"""Every operation: time on all cases, the tracked values on the network cases."""

from .harness import vocabulary
from .suite import suite

for _name in vocabulary.OPERATIONS:
    _made = suite("operation", _name, __name__)
    globals()[_made.__name__] = _made
