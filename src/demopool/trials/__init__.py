"""Trials: one candidate on one case in a worker, and the samples that come of it."""
