"""`python -m fairlead_cli`, the same as `fairlead`."""

from fairlead_cli.entry import main

if __name__ == "__main__":
    main()
