"""The client id of the command, by which brokers identify it."""

from typing import Final

CLIENT_ID: Final = "fairlead-cli"
