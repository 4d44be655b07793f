"""The first run on a GPU: what is right, how fast it is and why, as a page and an archive."""
