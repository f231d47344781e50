"""`python -m omnigraph_lake`: the command line."""

from omnigraph_lake.cli.main import main

if __name__ == "__main__":
    main()
