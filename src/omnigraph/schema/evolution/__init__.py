"""Two schemas -> a plan: what changes, what it costs, what rows must fulfil, what is refused."""
