"""Feature files as a lazy sequence of images: ``features.open("maps/", layout="nchw")``."""

from .datasets.images import Images
from .datasets.images import open_images as open

__all__ = ["Images", "open"]
