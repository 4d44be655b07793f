"""The report: everything that was measured, on one page that needs nothing else."""
