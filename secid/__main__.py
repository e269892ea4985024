"""`python -m secid`."""

from secid.cli.app import entry

if __name__ == "__main__":
    entry()
