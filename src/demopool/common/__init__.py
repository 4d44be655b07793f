"""Helpers for every package: files that are never half written, the cache folder, units."""
