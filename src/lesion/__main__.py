"""`python -m lesion` is the `lesion` command."""

from lesion.cli.main import main

if __name__ == "__main__":
    main()
