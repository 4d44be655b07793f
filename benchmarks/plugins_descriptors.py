"""What descriptors.py measures, of the plug-ins that this machine lists; without a list nothing."""

from . import descriptors as _ours
from .plugins import twins_of as _twins_of

globals().update(_twins_of(_ours, __name__))
