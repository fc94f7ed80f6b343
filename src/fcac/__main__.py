"""``python -m fcac`` is ``fcac``."""

from fcac.cli import main

if __name__ == "__main__":
    main()
