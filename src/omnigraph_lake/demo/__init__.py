"""Data sets to try Omnigraph with: files of the package, and the package indexes of Debian."""
