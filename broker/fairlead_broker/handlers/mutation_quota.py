"""The client that creates or deletes partitions, if a quota limits that (KIP-599)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_model.session.calls import MutationAsker


def mutation_asker(context: RequestContext, *, strict_since: int) -> MutationAsker | None:
    """Return what the controller has to know of the client; None if nothing limits it.

    From the version `strict_since` on clients know THROTTLING_QUOTA_EXCEEDED.
    """
    quotas = context.channel.quotas
    if quotas is None:
        return None
    return quotas.mutation_asker(context, is_strict=context.version >= strict_since)
