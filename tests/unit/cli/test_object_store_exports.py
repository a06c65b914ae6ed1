"""`fairlead metadata export` and `restore` with `s3://…`: what they do, and what they say."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, NamedTuple

import pytest
from short_reign import reign

from fairlead_cli.command_line import run_command_line
from fairlead_cli.exports import object_store
from fairlead_cli.local.layout import Layout
from fairlead_cli.main import fairlead
from fairlead_controller.decisions.events import AllocateProducerIds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from object_store import ObjectStoreServer

UNREACHABLE = "http://127.0.0.1:9"
"""The port `discard`, on which nobody listens."""
SHUTDOWN_POLL_S = 0.01


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a cluster that is stopped."""
    layout = Layout(tmp_path / "data")
    asyncio.run(reign(layout.controller_directory, AllocateProducerIds(0)))
    return layout.root


@pytest.fixture
def run(data: Path, capfd: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str, data: Path = data) -> Outcome:
        line = ["metadata", *arguments, "--data", str(data)]
        code = run_command_line(fairlead, line, "fairlead")
        return Outcome(int(code), *capfd.readouterr())

    return command


def test_an_export_comes_back_from_the_store(
    aws: ObjectStoreServer, run: Command, tmp_path: Path
) -> None:
    bucket = aws.make_bucket()
    place = f"s3://{bucket.name}/events/metadata.json"
    exported = run("export", place)
    assert exported == (0, f"Exported 0 brokers, 0 topics to {place}.\n", "")
    document = json.loads(bucket.get("events/metadata.json"))
    assert document == json.loads(run("export", "-").out)
    (tmp_path / "new").mkdir()
    restored = run("restore", place, data=tmp_path / "new")
    assert restored.code == 0, restored
    assert f"cluster {document['clusterId']}." in restored.out


def test_a_pod_asks_by_the_role_of_its_service_account(
    aws: ObjectStoreServer, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = aws.make_bucket()
    token = tmp_path / "token"
    token.write_text("of a service account")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/backups")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    exported = run("export", f"s3://{bucket.name}/m.json")
    assert exported.code == 0, exported
    token.unlink()
    refused = run("export", f"s3://{bucket.name}/m.json")
    assert refused.code == 1
    assert f"{token}'\nSet AWS_ACCESS_KEY_ID" in refused.err


def test_a_region_and_an_endpoint_of_this_service_alone_are_heard(
    aws: ObjectStoreServer, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = aws.make_bucket()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", aws.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", UNREACHABLE)
    monkeypatch.setenv("AWS_REGION", "not a region")
    assert "not a region" in run("export", f"s3://{bucket.name}/m.json").err
    monkeypatch.setenv("AWS_REGION", "")
    assert run("export", f"s3://{bucket.name}/m.json").code == 0


def test_what_is_no_document_changes_nothing(
    aws: ObjectStoreServer, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = aws.make_bucket()
    for content in (b"not JSON", b"\xff\xfe\xfd", b"[]"):
        bucket.put("wrong.json", content)
        refused = run("restore", f"s3://{bucket.name}/wrong.json", data=tmp_path)
        assert refused.code == 2, refused
    absent = run("restore", f"s3://{bucket.name}/none.json", data=tmp_path)
    assert absent.code == 2
    assert f"cannot read s3://{bucket.name}/none.json: there is no such object" in absent.err
    bucket.put("large.json", b"[" + b" " * (1 << 20) + b"]")
    monkeypatch.setattr(object_store, "DOCUMENT_BYTES_MAX", 1 << 20)
    large = run("restore", f"s3://{bucket.name}/large.json", data=tmp_path)
    assert large.code == 2
    assert "large.json is larger than 1 MiB: this is no metadata document" in large.err
    folder = run("export", f"s3://{bucket.name}/folder/")
    assert (folder.code, "names a folder, not a file" in folder.err) == (2, True)
    assert not list(tmp_path.glob("controller/*"))


@pytest.mark.parametrize("verb", ["export", "restore"])
class TestErrors:
    """What a person can do something about: exit code 1, and what to do."""

    def test_no_bucket(self, aws: ObjectStoreServer, run: Command, verb: str) -> None:
        said = run(verb, "s3://nobody-made-it/m.json")
        assert said.code == 1
        assert "s3://nobody-made-it/m.json" in said.err
        assert "(NoSuchBucket)\nMake the bucket, or name another one." in said.err

    def test_access_denied(self, aws: ObjectStoreServer, run: Command, verb: str) -> None:
        bucket = aws.make_bucket()
        bucket.put("m.json", b"{}")
        bucket.deny("s3:*")
        said = run(verb, f"s3://{bucket.name}/m.json")
        assert said.code == 1
        assert f"access denied by {aws.url}\nBackups take s3:PutObject" in said.err

    def test_a_key_that_nobody_knows(self, aws: ObjectStoreServer, run: Command, verb: str) -> None:
        bucket = aws.make_bucket()
        with aws.asking_who_calls():
            said = run(verb, f"s3://{bucket.name}/m.json")
        assert said.code == 1
        assert "(InvalidAccessKeyId)\nSet AWS_ACCESS_KEY_ID" in said.err

    def test_no_credentials(
        self, aws: ObjectStoreServer, run: Command, verb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bucket = aws.make_bucket()
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        said = run(verb, f"s3://{bucket.name}/m.json")
        assert said.code == 1
        assert "Partial credentials" in said.err
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        said = run(verb, f"s3://{bucket.name}/m.json")
        assert said.code == 1
        assert "Unable to locate credentials\nSet AWS_ACCESS_KEY_ID" in said.err
        monkeypatch.setenv("AWS_PROFILE", "none-such")
        said = run(verb, f"s3://{bucket.name}/m.json")
        assert said.code == 1
        assert "(none-such) could not be found\nSet AWS_ACCESS_KEY_ID" in said.err

    @pytest.mark.usefixtures("aws")
    def test_nobody_at_the_endpoint(
        self, run: Command, verb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        for wrong in (UNREACHABLE, "nonsense"):
            monkeypatch.setenv("AWS_ENDPOINT_URL", wrong)
            said = run(verb, "s3://backups/m.json")
            assert said.code == 1
            assert wrong in said.err
            assert "See whether AWS_ENDPOINT_URL names an object store" in said.err

    @pytest.mark.usefixtures("aws")
    def test_a_web_server_at_the_endpoint(
        self, run: Command, verb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with web_server(501) as url:
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)
            said = run(verb, "s3://backups/m.json")
        assert said.code == 1
        assert f"{url} answers HTTP 501, but not as the S3 API does\nSee whether" in said.err

    @pytest.mark.usefixtures("aws")
    def test_without_the_library(
        self, run: Command, verb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "boto3", None)
        said = run(verb, "s3://backups/m.json")
        assert said == (
            1,
            "",
            "error: s3:// needs the library boto3, which is not installed\n"
            "Install it:  pip install 'fairlead[s3]'\n",
        )


@pytest.mark.usefixtures("aws")
def test_a_web_server_that_takes_everything_has_saved_nothing(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_server(200) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        said = run("export", "s3://backups/m.json")
    assert (said.code, said.out) == (1, "")
    assert f"{url} does not answer as the S3 API does" in said.err


class WebPage(BaseHTTPRequestHandler):
    """Answers whatever is asked with the same page."""

    protocol_version = "HTTP/1.1"
    status = 200

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        page = b"<html><body>Hello</body></html>"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(page)))
        # This server serves one connection after the other. From Python 3.13 on, a client that has
        # failed keeps its connection until garbage is collected.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(page)

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_server(status: int) -> Iterator[str]:
    handler = type("Page", (WebPage,), {"status": status})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(SHUTDOWN_POLL_S,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
