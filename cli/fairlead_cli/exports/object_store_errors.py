"""Errors of an object store, explained to users."""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECK_ENDPOINT: Final = (
    "See whether AWS_ENDPOINT_URL names an object store: without it, AWS is asked. For a\n"
    "certificate of your own authority, AWS_CA_BUNDLE names the file."
)
GIVE_CREDENTIALS: Final = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE. A pod gets them from\n"
    "metadataBackup.credentialsSecret of the chart, or by a role of its service account."
)
GRANT_RIGHTS: Final = (
    "Backups take s3:PutObject, s3:ListBucket and, to remove old ones, s3:DeleteObject; an import\n"
    "takes s3:GetObject."
)
NAME_BUCKET: Final = (
    "Make the bucket, or name another one. AWS_ENDPOINT_URL and AWS_REGION say where it is looked\n"
    "for."
)
NAME_REGION: Final = "Name the bucket's region:  export AWS_REGION=…"
HINTS: Final = {
    "NoSuchBucket": NAME_BUCKET,
    "AccessDenied": GRANT_RIGHTS,
    "InvalidAccessKeyId": GIVE_CREDENTIALS,
    "SignatureDoesNotMatch": GIVE_CREDENTIALS,
    "ExpiredToken": GIVE_CREDENTIALS,
    "InvalidToken": GIVE_CREDENTIALS,
    "AuthorizationHeaderMalformed": NAME_REGION,
    "PermanentRedirect": NAME_REGION,
}
"""By the error code of the store."""


@contextmanager
def store_errors(what: str, endpoint: str) -> Iterator[None]:
    """Turn errors of the library into CliError. `what` is the action: `write s3://…`."""
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    unreachable = (exceptions.HTTPClientError, exceptions.ConnectionError)
    nobody = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.TokenRetrievalError,
        exceptions.SSOError,
        exceptions.ProfileNotFound,
    )
    try:
        yield
    except exceptions.ClientError as error:
        raise explain_answer(what, endpoint, error.response) from error
    except ResponseParserError as error:
        raise CliError(
            f"cannot {what}: {endpoint} does not answer as the S3 API does", hint=CHECK_ENDPOINT
        ) from error
    except unreachable as error:
        raise CliError(f"cannot {what}: {error}", hint=CHECK_ENDPOINT) from error
    except nobody as error:
        raise CliError(f"cannot {what}: {error}", hint=GIVE_CREDENTIALS) from error
    except exceptions.BotoCoreError as error:
        raise CliError(f"cannot {what}: {error}") from error
    except OSError as error:  # A file with credentials, such as a pod's token, cannot be read.
        raise CliError(f"cannot {what}: {error}", hint=GIVE_CREDENTIALS) from error


def explain_answer(what: str, endpoint: str, response: dict[str, Any]) -> CliError:
    """Return the error for a store's answer, with what to do about it."""
    code = str(response["Error"].get("Code", ""))
    message = response["Error"].get("Message", "")
    status = response["ResponseMetadata"]["HTTPStatusCode"]
    if code and not code.isdigit():
        return CliError(f"cannot {what}: {message or 'refused'} ({code})", hint=HINTS.get(code))
    # There is only an HTTP status: some stores, and servers of other kinds, refuse in this way.
    if status == HTTPStatus.FORBIDDEN:
        return CliError(f"cannot {what}: access denied by {endpoint}", hint=GRANT_RIGHTS)
    return CliError(
        f"cannot {what}: {endpoint} answers HTTP {status}, but not as the S3 API does",
        hint=CHECK_ENDPOINT,
    )
