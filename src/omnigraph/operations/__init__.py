"""One module per verb: what a graph can be asked to do."""
