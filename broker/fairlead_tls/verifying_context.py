"""TLS contexts that check a server as librdkafka does, whichever Python runs them."""

import ssl


def build_verifying_context(
    *, ca_file: str | None = None, ca_folder: str | None = None
) -> ssl.SSLContext:
    """Return a context that trusts a file's or folder's authorities, else the system's. OSError."""
    context = ssl.create_default_context(cafile=ca_file, capath=ca_folder)
    # Python 3.13 sets both: it refuses what lacks key identifiers, as certificates of many
    # authorities do, and is content with an intermediate authority.
    context.verify_flags &= ~(ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN)
    return context
