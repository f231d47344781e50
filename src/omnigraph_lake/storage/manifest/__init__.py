"""`__manifest`, the only authority: its state, its swap, its history."""
