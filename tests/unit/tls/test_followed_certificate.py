"""A certificate that is followed, on a process that has trouble of its own."""

import asyncio
import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest
from peer_certificates import PeerCertificates
from waiting import until

from fairlead_tls import followed_certificate
from fairlead_tls.certificates import CertificateError, build_peer_identity
from fairlead_tls.followed_certificate import FollowedPeer, follow_files
from fairlead_tls.peer_settings import INTERNAL_LISTENER


@pytest.fixture
def peers(tmp_path: Path) -> PeerCertificates:
    return PeerCertificates(tmp_path)


def follow(peers: PeerCertificates) -> FollowedPeer:
    return peers.follow(INTERNAL_LISTENER, 2, peers.of(2))


def test_no_descriptor_left_is_a_reason_to_keep_the_certificate(
    peers: PeerCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = follow(peers)
    before = certificate.current
    refused: list[None] = []
    certificate.on_refused = lambda: refused.append(None)
    peers.of(2)

    def no_room(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patching:
        patching.setattr(os, "memfd_create", no_room)
        asyncio.run(certificate.look())
        assert certificate.current is before
        assert len(refused) == 1
        with pytest.raises(CertificateError, match=r"ssl\.keystore\.location: Too many open"):
            follow(peers)
    asyncio.run(certificate.look())
    assert certificate.current.certificate != before.certificate


def test_files_are_looked_at_again_after_a_look_that_failed(
    peers: PeerCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = follow(peers)
    before = certificate.current
    refused: list[None] = []
    certificate.on_refused = lambda: refused.append(None)
    build = build_peer_identity

    async def story() -> None:
        following = asyncio.create_task(follow_files([certificate], poll_s=0.01))
        await until(lambda: len(refused) > 1)
        monkeypatch.setattr(followed_certificate, "build_peer_identity", build)
        await until(lambda: certificate.current is not before)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    def fail(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(followed_certificate, "build_peer_identity", fail)
    peers.of(2)
    asyncio.run(story())
