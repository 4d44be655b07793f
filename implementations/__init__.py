"""One small package per library, all with the same four files.

``weights.py``, ``pool.py``, ``sketch.py`` and ``power.py`` hold the kernels of the contract, so any
two backends can be read side by side. A package's ``__init__`` is its light specification: it can
be imported without the library. An implementation imports its own library and the contract, never
another implementation; array-level code that several libraries share is in ``shared``.
"""
