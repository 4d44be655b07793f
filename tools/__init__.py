"""Scripts behind the Makefile. They stay out of benchmarks/, whose every file asv imports."""
