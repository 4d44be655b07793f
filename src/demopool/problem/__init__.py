"""The problem: what is computed, with which parameters, on which sizes, by which routes.

Plain values only: nothing here knows a library, a device or a measurement.
"""
