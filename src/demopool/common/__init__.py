"""What every package may use: files that are never half written, the cache folder, units."""
