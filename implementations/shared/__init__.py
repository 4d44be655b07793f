"""Code that several implementations share: on any array namespace, or on NumPy arrays."""
