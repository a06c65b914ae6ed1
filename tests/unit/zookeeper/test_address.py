"""Connect strings: what is understood, and how the rest is refused."""

import pytest

from fairlead_zookeeper.address import ZooKeeperAddressError, parse_connect_string


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("h:2181", ("h:2181",), ""),
        ("h", ("h:2181",), ""),
        ("zookeeper://h1:1,h2:2/a/b", ("h1:1", "h2:2"), "/a/b"),
        ("h1:1, h2:2/", ("h1:1", "h2:2"), ""),
        ("[::1]:2182/k", ("[::1]:2182",), "/k"),
        ("[::1]", ("[::1]:2181",), ""),
    ],
)
def test_servers_and_chroot_are_read(text: str, hosts: tuple[str, ...], chroot: str) -> None:
    access = parse_connect_string(text)
    assert (access.hosts, access.chroot) == (hosts, chroot)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no server"),
        ("/only/a/chroot", "names no server"),
        ("h:x/a", "bad server 'h:x'"),
        ("h:0", "bad server 'h:0'"),
        ("h:1/a//b", "bad chroot"),
        ("h:1/../b", "bad chroot"),
        ("kafka://h:1", "no address of ZooKeeper"),
    ],
)
def test_what_cannot_be_understood_is_named(text: str, says: str) -> None:
    with pytest.raises(ZooKeeperAddressError, match=says):
        parse_connect_string(text)


def test_acls_need_a_user_and_the_password_is_never_shown() -> None:
    with pytest.raises(ZooKeeperAddressError, match="need a user"):
        parse_connect_string("h:1", sets_acl=True)
    with pytest.raises(ZooKeeperAddressError, match="USER:PASSWORD"):
        parse_connect_string("h:1", digest="user")
    access = parse_connect_string("h:1/a", digest="user:password", sets_acl=True)
    assert access.connect_string == "h:1/a"
