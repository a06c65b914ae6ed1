"""The Kubernetes cluster and namespace of a command, and a client for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from fairlead_kube.client import KubeClient

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
REQUEST_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Access:
    """The values of kubectl's options with these names; None is kubectl's default."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None

    def run(self, work: Callable[[KubeClient, str], Awaitable[T]]) -> T:
        """Call `work` with a client and the namespace; CliError says what is wrong."""
        return asyncio.run(self._run(work))

    async def _run(self, work: Callable[[KubeClient, str], Awaitable[T]]) -> T:
        from fairlead_kube.client import KubeClient
        from fairlead_kube.credentials import (
            kubeconfig_paths,
            load_credentials,
            read_kubeconfig,
        )
        from fairlead_kube.errors import (
            ApiError,
            ApiUnavailableError,
            CredentialsError,
        )

        try:
            if self.context or self.kubeconfig:
                paths = [self.kubeconfig] if self.kubeconfig else kubeconfig_paths()
                credentials = read_kubeconfig(paths, context_name=self.context or "")
            else:
                credentials = load_credentials()
        except CredentialsError as error:
            raise CliError(str(error), hint="See what there is:  kubectl config view") from error
        client = KubeClient(
            credentials,
            request_timeout_s=REQUEST_TIMEOUT_S,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            user_agent="kubectl-fairlead",
        )
        try:
            return await work(client, self.namespace or credentials.namespace)
        except ApiError as error:
            raise explain_api_error(error) from error
        except ApiUnavailableError as error:
            raise CliError(
                f"the API server does not answer: {error}", hint="Try:  kubectl get nodes"
            ) from error
        finally:
            await client.close()


def explain_api_error(error: Any) -> CliError:
    """Return the error for a server's answer, with what to do about it."""
    hint = None
    if error.status == 403:
        hint = (
            "Ask for the role view (it has fairlead-view in it), or admin (with fairlead-admin) "
            "to create drills."
        )
    elif error.is_not_found and "could not find the requested resource" in error.message:
        hint = "Fairlead is not installed here:  helm install fairlead charts/fairlead"
    elif error.is_not_found:
        hint = "See what there is:  kubectl get fairlead -A"
    return CliError(f"the API server refused: {error.message or error}", hint=hint)


def access_options(command: Command) -> Command:
    """Add `-n`, `--context`, `--kubeconfig` to a verb, which gets them as `access`."""

    @click.option("-n", "--namespace", help="Namespace; default: that of the context.")
    @click.option("--context", help="Context of the kubeconfig.")
    @click.option(
        "--kubeconfig",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Kubeconfig file, instead of $KUBECONFIG and ~/.kube/config.",
    )
    @wraps(command)
    def with_access(
        *args: Any, namespace: str | None, context: str | None, kubeconfig: Path | None, **more: Any
    ) -> Any:
        return command(*args, access=Access(namespace, context, kubeconfig), **more)

    return with_access  # type: ignore[return-value]
