"""Measurement: one clock, one memory meter and one worker for everything that reports figures.

The benchmarks load these modules from the working tree to measure other commits with the same
instruments, so they import little else of demopool.
"""
