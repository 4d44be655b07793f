"""Scripts to run and to read: each is complete in its own file."""
