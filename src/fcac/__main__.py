"""Run the command line: ``python -m fcac`` does the same as ``fcac``."""

from fcac.cli import main

if __name__ == "__main__":
    main()
