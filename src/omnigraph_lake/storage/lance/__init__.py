"""Lance datasets: opened at a pin, verified, read, compacted."""
