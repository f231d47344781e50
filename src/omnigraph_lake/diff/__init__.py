"""What changed between two states of a graph, and the changes of a branch as they come."""
