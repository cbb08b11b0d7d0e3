"""Errors of obstore as errors of Usher."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from usher.certificates import (
    WORDS,
    CertificateProblem,
    TrustedAuthorities,
    rustls_certificate_problem,
)
from usher.errors import NotFound, StoreUnusable, Unreachable, UsherError
from usher.object_store.address import StoreAddress

# In the answer to a request, or for one of several objects that a request deletes.
ERROR_CODE: Final = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
CREDENTIAL_CODES: Final = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"}
)


class ChangedObject(Unreachable):
    """Another file was stored under the key during the download."""


class ErrorTranslator:
    """Names the store and the object in each error."""

    def __init__(
        self,
        address: StoreAddress,
        endpoint: str,
        exceptions: Any,  # noqa: ANN401 - a module
        authorities: TrustedAuthorities,
    ) -> None:
        self.address, self.endpoint = address, endpoint
        self._authorities = authorities
        self._exceptions = exceptions

    def name(self, key: str) -> str:
        """Return the URL of an object."""
        return f"{self.address}/{key}"

    @contextmanager
    def translate(self, key: str, permission: str) -> Iterator[None]:
        """Raise the errors of obstore as ours; the requests need this permission."""
        exceptions = self._exceptions
        try:
            yield
        except FileNotFoundError as error:
            if error_code(error) == "NoSuchBucket":
                raise self._missing_bucket() from error
            raise NotFound(f"{self.name(key)} does not exist.") from error
        except exceptions.PreconditionError as error:
            raise ChangedObject(f"{self.name(key)} changed during the download.") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise self._denied(key, error_code(error), permission) from error
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise self._other_error(key, error, permission) from error

    def _missing_bucket(self) -> StoreUnusable:
        return StoreUnusable(
            f"There is no bucket {self.address.bucket} at {self.endpoint}.",
            hint="Create the bucket, or correct its name and the endpoint.",
        )

    def _denied(self, key: str, code: str, permission: str) -> StoreUnusable:
        if code in CREDENTIAL_CODES:
            return StoreUnusable(
                f"{self.endpoint} does not accept the credentials for {self.address} ({code}).",
                hint="Check s3_access_key and s3_secret_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        if code == "RequestTimeTooSkewed":
            return StoreUnusable(
                f"The clock of this machine differs too much from that of {self.endpoint}.",
                hint="Synchronize both clocks with NTP.",
            )
        return StoreUnusable(
            f"{self.endpoint} denies access to {self.name(key)} ({code or 'no reason'}).",
            hint=f"The account lacks {permission} on {self.address}, or the bucket does not exist.",
        )

    def _other_error(self, key: str, error: Exception, permission: str) -> UsherError:
        match error_code(error):
            case "NoSuchBucket" | "InvalidBucketName":
                return self._missing_bucket()
            case "AccessDenied" as code:
                return self._denied(key, code, permission)
            case code if code in CREDENTIAL_CODES:
                return self._denied(key, code, permission)
        if "CredentialsNotLoaded" in str(error) or "169.254.169.254" in str(error):
            return StoreUnusable(
                f"There are no credentials for {self.address}.",
                hint="Set s3_access_key and s3_secret_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        if problem := rustls_certificate_problem(str(error)):
            return self._untrusted(problem)
        reason = " ".join(str(error).partition("\n")[0].split())[:300]
        return Unreachable(
            f"{self.name(key)} at {self.endpoint} cannot be reached: {reason}.",
            hint="Check that the server runs there, and s3_endpoint.",
        )

    def _untrusted(self, problem: CertificateProblem) -> UsherError:
        # MGMT does not start with a configuration that cannot work, but it does while a certificate has expired.
        kind = Unreachable if problem == "expired" else StoreUnusable
        return kind(
            f"{self.address} cannot be used: the certificate of {self.endpoint} {WORDS[problem]}.",
            hint=self._authorities.hint(problem),
        )


def error_code(error: Exception) -> str:
    """Return the code in the server's answer, such as `NoSuchBucket`; empty if there is none."""
    match = ERROR_CODE.search(str(error))
    return match[1] or match[2] if match else ""
