"""The keys that tokens are signed with, read from a file or an https URL from time to time.

If a read fails, the keys of the read before stay, and the broker tries again soon. For a token with
an unknown key the broker reads the keys at once, but at most twice a minute: a client can invent
key ids. No part of a token chooses what is read.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from fairlead_broker.limits import JWKS_BYTES_MAX, JWKS_EXPEDITED_S, JWKS_TIMEOUT_S
from fairlead_broker.security.sasl.token_judge import read_keys
from fairlead_tls.verifying_context import build_verifying_context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_broker.security.sasl.sasl_settings import OAuthSettings
    from fairlead_broker.security.sasl.token_judge import KeyId, TokenKey

logger = logging.getLogger(__name__)
_FILE: Final = "file://"
_OK: Final = 200


class JwksReader:
    """Keeps the keys of one URL. `keys` may be read in any thread."""

    def __init__(self, settings: OAuthSettings) -> None:
        self.keys: Mapping[KeyId, TokenKey] = MappingProxyType({})
        self.failures_count = 0
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._expedited_s = float("-inf")
        self._has_read = False

    def start(self) -> None:
        """Read the keys now, and from time to time."""
        self._task = self._loop.create_task(self._follow())

    async def stop(self) -> None:
        """Stop reading the keys."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def want(self) -> None:
        """Have the keys read soon, because of a key that is not known. From any thread."""
        self._loop.call_soon_threadsafe(self._expedite)

    def _expedite(self) -> None:
        now_s = self._loop.time()
        if now_s - self._expedited_s >= JWKS_EXPEDITED_S:
            self._expedited_s = now_s
            self._wanted.set()

    async def _follow(self) -> None:
        settings = self._settings
        backoff_ms = settings.retry_backoff_ms
        while True:
            self._wanted.clear()
            try:
                document = await self._read(settings.jwks_url)
                self._take(read_keys(json.loads(document)))
            except (OSError, ValueError, RecursionError) as error:
                self.failures_count += 1
                logger.warning(
                    "sasl.oauthbearer.jwks.endpoint.url=%s: %s; %d keys of before stay",
                    settings.jwks_url,
                    error,
                    len(self.keys),
                )
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, settings.retry_backoff_max_ms)
                continue
            backoff_ms = settings.retry_backoff_ms
            try:
                async with asyncio.timeout(settings.refresh_ms / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    def _take(self, keys: Mapping[KeyId, TokenKey]) -> None:
        if not keys and (self.keys or not self._has_read):
            logger.warning(
                "sasl.oauthbearer.jwks.endpoint.url=%s: no key in it can be used, so no token can",
                self._settings.jwks_url,
            )
        self._has_read = True
        self.keys = MappingProxyType(dict(keys))

    async def _read(self, url: str) -> bytes:
        if url.startswith(_FILE):
            return await asyncio.to_thread(_read_file, unquote(urlsplit(url).path))
        import aiohttp

        # In a thread: it reads all authorities of the system.
        context = await asyncio.to_thread(build_verifying_context)
        timeout = aiohttp.ClientTimeout(total=JWKS_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, ssl=context, allow_redirects=False) as response,
            ):
                if response.status != _OK:
                    raise OSError(f"it answers {response.status}")
                data = await response.content.read(JWKS_BYTES_MAX + 1)
                while len(data) <= JWKS_BYTES_MAX and not response.content.at_eof():
                    data += await response.content.read(JWKS_BYTES_MAX + 1 - len(data))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OSError(str(error) or type(error).__name__) from error
        return _checked(data)


def _read_file(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return _checked(file.read(JWKS_BYTES_MAX + 1))


def _checked(data: bytes) -> bytes:
    if len(data) > JWKS_BYTES_MAX:
        raise ValueError(f"more than {JWKS_BYTES_MAX} bytes")
    return data
