"""How writers of one graph wait for each other, and publish each other."""
