"""What is known of this machine, and what ``auto`` makes of it: cost model, profiles, choice."""
