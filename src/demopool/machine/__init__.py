"""What this machine is: processor, memory, GPUs, libraries; the key of it all."""
