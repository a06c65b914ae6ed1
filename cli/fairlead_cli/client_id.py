"""What the command calls itself to brokers, which tell clients apart by it."""

from typing import Final

CLIENT_ID: Final = "fairlead-cli"
