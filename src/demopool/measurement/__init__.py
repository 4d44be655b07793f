"""Measuring: one clock, one memory meter, one worker, one fingerprint, for everything that reports.

Modules here import each other and nothing else of demopool but the vocabulary and the errors: the
benchmarks load them from the working tree to measure other commits with the same instruments.
"""
