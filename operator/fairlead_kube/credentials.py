"""How to reach the API server, and with which identity: in a pod, or by a kubeconfig.

In a pod the token and the authority are files that Kubernetes renews; each is read again when it
changes. A kubeconfig may name tokens, token files, client certificates (files or inline), an
authority, or none (`insecure-skip-tls-verify`). Programs that fetch credentials are refused.
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fairlead_kube.errors import CredentialsError

SERVICE_ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_UNSUPPORTED_USER_KEYS: Final = ("exec", "auth-provider", "username", "as", "as-uid", "as-groups")
_UNSUPPORTED_CLUSTER_KEYS: Final = ("proxy-url", "tls-server-name")


class TokenFile:
    """A bearer token in a file that is renewed; CredentialsError if the file has none yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = ""
        try:
            self._read_again()
        except OSError as error:
            raise CredentialsError(f"the token cannot be read: {error}") from error

    def read(self) -> str:
        """Return the token; the file is read only when it has changed.

        If the file cannot be read, the last token is returned, and the server decides about it.
        """
        with suppress(OSError):
            self._read_again()
        return self._token

    def _read_again(self) -> None:
        seen = _version_of(self._path)
        if seen != self._seen:
            self._token = self._path.read_text().strip()
            self._seen = seen


class AuthorityFile:
    """The certificate authorities of the server, in a file to which Kubernetes adds new ones."""

    def __init__(self, path: Path, context: ssl.SSLContext) -> None:
        """`context` already trusts what is in the file now."""
        self._path = path
        self._context = context
        self._seen = _version_of(path)

    def follow(self) -> None:
        """Trust added authorities for new connections.

        Removed authorities stay trusted until this process ends. A file that cannot be read adds
        nothing.
        """
        with suppress(OSError, ValueError):
            seen = _version_of(self._path)
            if seen != self._seen:
                self._context.load_verify_locations(cadata=self._path.read_text())
                self._seen = seen


def _version_of(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


@dataclass(frozen=True, slots=True)
class Credentials:
    """A server, and the credentials for it."""

    server: str
    """URL without a slash at its end."""
    ssl_context: ssl.SSLContext | None
    """None for plain http."""
    namespace: str = "default"
    """The namespace of the pod, or the one that the kubeconfig names."""
    token: str = ""
    token_file: TokenFile | None = None
    authority_file: AuthorityFile | None = None

    def bearer_token(self) -> str:
        """Return the token to send, empty if there is none; also trust newly added authorities."""
        if self.authority_file is not None:
            self.authority_file.follow()
        return self.token_file.read() if self.token_file is not None else self.token


def load_credentials(
    environment: Mapping[str, str] = os.environ,
    *,
    service_account_folder: Path = SERVICE_ACCOUNT_FOLDER,
) -> Credentials:
    """Return the credentials of this pod, else of $KUBECONFIG, else of ~/.kube/config.

    CredentialsError if there are none, or if they are of a kind that is not supported.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if host and (service_account_folder / "token").exists():
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        return _pod_credentials(service_account_folder, host, port)
    return read_kubeconfig(kubeconfig_paths(environment))


def _pod_credentials(folder: Path, host: str, port: str) -> Credentials:
    authority = folder / "ca.crt"
    context = _build_context({"certificate-authority": str(authority)}, {}, folder)
    try:
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise CredentialsError(f"the pod's namespace cannot be read: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Credentials(
        server,
        context,
        namespace,
        token_file=TokenFile(folder / "token"),
        authority_file=AuthorityFile(authority, context),
    )


def kubeconfig_paths(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the files that kubectl would read: those of $KUBECONFIG, else ~/.kube/config."""
    named = environment.get("KUBECONFIG", "")
    paths = [Path(part) for part in named.split(os.pathsep) if part]
    return paths or [Path(environment.get("HOME", "~")).expanduser() / ".kube/config"]


def read_kubeconfig(paths: list[Path], *, context_name: str = "") -> Credentials:
    """Return the credentials of a context of kubeconfig files, merged as kubectl does.

    Without `context_name`, those of the current context.
    """
    config = _Kubeconfig(paths)
    name = context_name or config.current_context
    if not name:
        raise CredentialsError(
            f"no current context in {', '.join(str(path) for path in paths)}, and not in a pod"
        )
    context, _ = config.find("context", name)
    cluster, cluster_folder = config.find("cluster", str(context.get("cluster", "")))
    user: Mapping[str, Any] = {}
    user_folder = cluster_folder
    if context.get("user"):
        user, user_folder = config.find("user", str(context["user"]))
    _refuse_unsupported(f"cluster {context.get('cluster')}", cluster, _UNSUPPORTED_CLUSTER_KEYS)
    _refuse_unsupported(f"user {context.get('user')}", user, _UNSUPPORTED_USER_KEYS)
    server = str(cluster.get("server", "")).rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise CredentialsError(f"cluster {context.get('cluster')} has no usable server: {server!r}")
    ssl_context = None
    if server.startswith("https://"):
        ssl_context = _build_context(cluster, user, cluster_folder, user_folder)
    token_file = None
    if user.get("tokenFile"):
        token_file = TokenFile(user_folder / str(user["tokenFile"]))
    return Credentials(
        server,
        ssl_context,
        str(context.get("namespace") or "default"),
        str(user.get("token") or ""),
        token_file,
    )


class _Kubeconfig:
    """Several kubeconfig files as one: the first of several entries of the same name counts."""

    def __init__(self, paths: list[Path]) -> None:
        import yaml

        self.current_context = ""
        self._documents: list[tuple[Mapping[str, Any], Path]] = []
        for path in paths:
            try:
                document = yaml.safe_load(path.read_text()) or {}
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
                raise CredentialsError(f"kubeconfig {path} cannot be read: {error}") from error
            if not isinstance(document, dict):
                raise CredentialsError(f"kubeconfig {path} is no mapping")
            self._documents.append((document, path.absolute().parent))
            self.current_context = self.current_context or document.get("current-context") or ""

    def find(self, sort: str, name: str) -> tuple[Mapping[str, Any], Path]:
        """Return a context, cluster or user, and the folder to which its paths are relative."""
        for document, folder in self._documents:
            for entry in document.get(f"{sort}s") or []:
                if isinstance(entry, dict) and entry.get("name") == name:
                    return entry.get(sort) or {}, folder
        raise CredentialsError(f"the kubeconfig has no {sort} {name!r}")


def _refuse_unsupported(owner: str, entry: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if entry.get(key):
            raise CredentialsError(
                f"{owner} of the kubeconfig uses {key!r}, which is not supported; "
                "use a token, a token file or a client certificate"
            )


def _build_context(
    cluster: Mapping[str, Any],
    user: Mapping[str, Any],
    cluster_folder: Path,
    user_folder: Path | None = None,
) -> ssl.SSLContext:
    user_folder = user_folder or cluster_folder
    try:
        context = _build_authority(cluster, cluster_folder)
        certificate = _content(user, "client-certificate", user_folder)
        key = _content(user, "client-key", user_folder)
        if certificate and key:
            _load_client_certificate(context, certificate, key)
    except (OSError, ssl.SSLError, ValueError, binascii.Error) as error:
        raise CredentialsError(f"a certificate or key cannot be used: {error}") from error
    return context


def _build_authority(cluster: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    # Python 3.13 sets this flag; many clusters' authorities lack the key identifiers it requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _content(entry: Mapping[str, Any], key: str, folder: Path) -> bytes:
    """Return the inline content of `<key>-data`, else that of the file that `<key>` names."""
    inline = entry.get(f"{key}-data")
    if inline:
        return base64.b64decode(inline, validate=True)
    name = entry.get(key)
    return (folder / str(name)).read_bytes() if name else b""


def _load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and its key from a short-lived file: Python loads them from files only."""
    with tempfile.NamedTemporaryFile(prefix="fairlead-", suffix=".pem") as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)
