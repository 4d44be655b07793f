"""Measuring: the machine and memory. One meter for everything that reports."""
