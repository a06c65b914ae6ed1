"""Who may read the pages that are for the controller's own machine."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from fairlead_controller.pages.controller_pages import ControllerPages

PAGES = ("/status", "/status/topics/t", "/explain", "/explain/t/0")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8170", 503),
        ("localhost", 503),
        ("LOCALHOST.:8170", 503),
        ("[::1]:8170", 503),
        ("evil.example:8170", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
    ],
)
def test_no_page_of_another_site_reads_them_in_a_browser_here(host: str, status: int) -> None:
    """Its owner lets the name lead to 127.0.0.1, so that the browser takes both for one site."""

    async def metrics() -> bytes:
        return b""

    async def story() -> None:
        pages = ControllerPages(find_reign=lambda: None, metrics=metrics)
        runner = web.AppRunner(pages.build_application())
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        try:
            await site.start()
            port = runner.addresses[0][1]
            async with aiohttp.ClientSession() as http:
                for page in PAGES:
                    url = f"http://127.0.0.1:{port}{page}"
                    async with http.get(url, headers={"Host": host}) as answer:
                        assert answer.status == status, page
        finally:
            await runner.cleanup()

    asyncio.run(story())
