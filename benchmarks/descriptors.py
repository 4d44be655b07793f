"""Every descriptor: time on all cases, the tracked values on the network cases."""

from .harness import vocabulary
from .suite import suite

for _name in vocabulary.DESCRIPTORS:
    _made = suite("descriptor", _name, __name__)
    globals()[_made.__name__] = _made
