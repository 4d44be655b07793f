"""Array-level code that several libraries share, written once on a namespace."""
