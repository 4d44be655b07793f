"""Descriptors of a whole dataset: feature files in, one file of descriptors out, whatever happens.

``images.py`` opens the files (``formats.py``) as one lazy sequence. ``planning.py`` cuts it into
units of consecutive images and decides once per size what computes them. ``units.py`` does one
unit, ``pipeline.py`` and ``cluster.py`` do all of them; ``journal.py`` remembers which are done.
"""
