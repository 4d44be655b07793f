"""A description of this machine: processor, memory, GPUs, libraries, and a key of all of them."""
