"""The asv suite: thin classes over demopool. asv imports every file in this folder.

descriptors.py, operations.py, gradients.py   what asv runs, made by suite.py
counts.py                                     instructions and cache misses, counted by valgrind
profiles.py                                   which part of it `make bench` runs
baselines.py                                  the denominators
harness.py, notes.py, asv_plugin.py           how it is measured and kept
"""

import sys

if "run_server" in sys.argv:
    # asv's fork server: what is imported here is inherited by every measurement. Only libraries on
    # the CPU: a child of a process that has used CUDA cannot use it.
    from .preload import preload

    preload()
