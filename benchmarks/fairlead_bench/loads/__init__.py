"""Load generators as child processes, and the resources that they used."""
