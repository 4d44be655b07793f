"""Code shared by several implementations, for any array namespace or for NumPy arrays."""
