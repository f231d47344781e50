"""Two schemas -> a plan: changes, their costs, conditions on rows, refusals."""
