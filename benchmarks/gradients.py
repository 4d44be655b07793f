"""Forward and backward of every descriptor, on tensors that carry gradients."""

from .harness import vocabulary
from .suite import gradient_suite

for _name in vocabulary.DESCRIPTORS:
    _made = gradient_suite(_name, __name__)
    globals()[_made.__name__] = _made
