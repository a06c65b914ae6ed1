"""Where credentials come from, and what is refused with which words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fairlead_kube.credentials import Credentials, load_credentials
from fairlead_kube.errors import CredentialsError
from fairlead_operator.certificates.authority import make_authority

if TYPE_CHECKING:
    from pathlib import Path

AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBlzCCAT2gAwIBAgIUfqRmPF65JJUbUU3FDGm1zA3YzgswCgYIKoZIzj0EAwIw
IDEeMBwGA1UEAwwVYW4gYXV0aG9yaXR5IG9mIHRlc3RzMCAXDTI2MTEyMTA4NTMy
OVoYDzIxMjYxMDI4MDg1MzI5WjAgMR4wHAYDVQQDDBVhbiBhdXRob3JpdHkgb2Yg
dGVzdHMwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT+WHlGkWNidbszj+rgc5Yo
ssdgGmrAtwFMvbrL2QpwITDWUnIUFzTN2yvtzUplcPzV7dEyQaTVz0vshgro7+qd
o1MwUTAdBgNVHQ4EFgQUGoCa15ZZDzP7+00bc2/KwuTdAhgwHwYDVR0jBBgwFoAU
GoCa15ZZDzP7+00bc2/KwuTdAhgwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD
AgNIADBFAiEA668aaA0qhjTpzSylWfjBsDutkQVvJhmgK/4owuEp/YoCICez0pgt
PbrME7Z7H/eBI05Yits3aXd5dpoNGf8bJK10
-----END CERTIFICATE-----
"""


def write_config(path: Path, name: str = "one", **parts: Any) -> Path:
    """A kubeconfig with one context, cluster and user of a name."""
    document = {
        "current-context": parts.pop("current", name),
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, **parts.pop("context", {})}}
        ],
        "clusters": [
            {"name": name, "cluster": {"server": "http://127.0.0.1:1", **parts.pop("cluster", {})}}
        ],
        "users": [{"name": name, "user": parts.pop("user", {})}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def load(*paths: Path) -> Credentials:
    return load_credentials({"KUBECONFIG": ":".join(str(path) for path in paths)})


def test_the_current_context_counts(tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "config",
        context={"namespace": "team"},
        cluster={"server": "http://127.0.0.1:8001/"},
        user={"token": "abc"},
    )
    credentials = load(config)
    assert credentials.server == "http://127.0.0.1:8001"
    assert credentials.namespace == "team"
    assert credentials.bearer_token() == "abc"
    assert credentials.ssl_context is None


def test_a_kubeconfig_in_the_home_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write_config(tmp_path / ".kube/config")
    credentials = load_credentials({"HOME": str(tmp_path)})
    assert (credentials.namespace, credentials.bearer_token()) == ("default", "")


def test_several_files_count_as_one_and_the_first_wins(tmp_path: Path) -> None:
    first = write_config(tmp_path / "first", user={"token": "first"})
    second = write_config(tmp_path / "second", current="other", user={"token": "second"})
    third = write_config(tmp_path / "third", "other", user={"token": "third"})
    assert load(tmp_path / "absent", first, second).bearer_token() == "first"
    assert load(second, third).bearer_token() == "third"


def test_a_token_file_is_relative_to_its_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    credentials = load(write_config(tmp_path / "config", user={"tokenFile": "token"}))
    assert credentials.bearer_token() == "from a file"


def test_a_pod_has_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the pod")
    (tmp_path / "namespace").write_text("fairlead\n")
    (tmp_path / "ca.crt").write_text(AUTHORITY)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    credentials = load_credentials(environment, service_account_folder=tmp_path)
    assert credentials.server == "https://[fd00::1]:6443"
    assert credentials.namespace == "fairlead"
    assert credentials.bearer_token() == "of the pod"
    assert credentials.ssl_context is not None
    assert credentials.ssl_context.check_hostname


def test_a_pod_trusts_an_authority_that_comes_later(tmp_path: Path) -> None:
    """Kubernetes adds the next authority to the file of running pods, and uses it weeks later."""
    now = datetime.now(UTC)
    first, second = (make_authority(name, now).certificate for name in ("first", "second"))
    for name, content in (("token", b"t"), ("namespace", b"fairlead"), ("ca.crt", first)):
        (tmp_path / name).write_bytes(content)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}
    credentials = load_credentials(environment, service_account_folder=tmp_path)
    context = credentials.ssl_context
    assert context is not None
    known = len(context.get_ca_certs())
    (tmp_path / "ca.crt").write_bytes(b"half of it")
    assert credentials.bearer_token() == "t"
    assert len(context.get_ca_certs()) == known
    (tmp_path / "ca.crt").write_bytes(first + second)
    assert credentials.bearer_token() == "t"
    certificates: list[Any] = context.get_ca_certs()
    names = [dict(each[0] for each in ca["subject"]) for ca in certificates]
    assert [name["commonName"] for name in names][-2:] == ["first", "second"]
    (tmp_path / "ca.crt").unlink()
    assert credentials.bearer_token() == "t"


def test_a_server_without_a_known_authority_can_be_trusted_on_demand(tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    context = load(write_config(tmp_path / "config", cluster=cluster)).ssl_context
    assert context is not None
    assert not context.check_hostname


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"user": {"exec": {"command": "aws"}}}, "'exec', which is not supported"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "'auth-provider', which is not supported"),
        ({"user": {"username": "u", "password": "p"}}, "'username', which is not supported"),
        ({"cluster": {"proxy-url": "http://p"}}, "'proxy-url', which is not supported"),
        ({"cluster": {"server": "unix:/x"}}, "has no usable server"),
        ({"user": {"tokenFile": "absent"}}, "the token cannot be read"),
        ({"current": ""}, "no current context"),
        ({"current": "two"}, "no context 'two'"),
        ({"context": {"user": "two"}}, "no user 'two'"),
        (
            {"cluster": {"server": "https://h", "certificate-authority": "absent"}},
            "a certificate or key cannot be used",
        ),
        (
            {"cluster": {"server": "https://h", "certificate-authority-data": "%%%"}},
            "a certificate or key cannot be used",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, parts: dict[str, Any], text: str) -> None:
    with pytest.raises(CredentialsError, match=text):
        load(write_config(tmp_path / "config", **parts))


@pytest.mark.parametrize("text", ["- a list", "{", "\0"])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(CredentialsError, match=r"kubeconfig .*config"):
        load(tmp_path / "config")
