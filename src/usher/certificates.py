"""Which authorities a TLS client trusts, and why it refuses a certificate."""

import re
import ssl
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from usher.errors import BadSetting

CertificateProblem = Literal[
    "early", "expired", "self-signed", "issuer", "chain", "revoked", "name", "address", "authority"
]
PROBLEM_OF_CODE: Final[dict[int, CertificateProblem]] = {
    9: "early",
    10: "expired",
    18: "self-signed",
    19: "issuer",
    20: "issuer",
    21: "chain",
    23: "revoked",
    62: "name",
    64: "address",
}  # by OpenSSL's error codes
WORDS: Final[dict[CertificateProblem, str]] = {
    "early": "is not valid yet",
    "expired": "has expired",
    "self-signed": "is self-signed",
    "issuer": "has an unknown issuer",
    "chain": "comes without its chain",
    "revoked": "was revoked",
    "name": "is for another name",
    "address": "is for another address",
    "authority": "is that of an authority, not of a server",
}
CLOCK_HINT: Final = "Check the clocks of both machines."
HINTS: Final[dict[CertificateProblem, str]] = {
    "early": CLOCK_HINT,
    "expired": f"Renew the certificate of the server. {CLOCK_HINT}",
    "revoked": "Renew the certificate of the server.",
    "authority": "Sign a certificate for the server with it, or create it with basicConstraints=CA:FALSE.",
}
# The names of the same problems in the errors of rustls, which obstore uses.
RUSTLS_PROBLEMS: Final[dict[str, CertificateProblem]] = {
    "NotValidYet": "early",
    "Expired": "expired",
    "UnknownIssuer": "issuer",
    "Revoked": "revoked",
    "NotValidForName": "name",
    "CaUsedAsEndEntity": "authority",
}
RUSTLS_ERROR: Final = re.compile(
    rf"InvalidCertificate\([\s\w(]*?\b({'|'.join(RUSTLS_PROBLEMS)})(?:Context)?\b"
)


def certificate_problem(error: BaseException | None) -> CertificateProblem | None:
    """Return what is wrong with the certificate; None if the error has another cause, or an unusual one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return PROBLEM_OF_CODE.get(error.verify_code)
    return None


def describe_certificate_error(error: ssl.SSLCertVerificationError) -> str:
    """Return what is wrong with the certificate, such as `has expired`."""
    problem = certificate_problem(error)
    return WORDS[problem] if problem else f"is not valid: {error.verify_message}"


def rustls_certificate_problem(text: str) -> CertificateProblem | None:
    match = RUSTLS_ERROR.search(text)
    return RUSTLS_PROBLEMS[match[1]] if match else None


class TrustedAuthorities:
    """The authorities of the system, and those in a file that a setting names.

    The TLS context is made once, when it is first needed: that takes 34 ms.
    """

    def __init__(
        self, ca_file: str = "", *, setting: str = "s3_ca", address_setting: str = "s3_endpoint"
    ) -> None:
        self.ca_file = ca_file
        self.setting, self.address_setting = setting, address_setting

    @cached_property
    def context(self) -> ssl.SSLContext:
        """The settings of TLS connections; BadSetting if the file has no certificate."""
        context = ssl.create_default_context()
        if self.ca_file:
            try:
                context.load_verify_locations(self.ca_file)
            except OSError as error:
                raise self.unusable_file(error) from error
        return context

    def pem(self) -> bytes:
        """Return the content of the file; BadSetting if it has no certificate."""
        try:
            data = Path(self.ca_file).read_bytes()
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(self.ca_file)
        except OSError as error:
            raise self.unusable_file(error) from error
        return data

    def check(self) -> None:
        """Raise BadSetting if the setting names a file without a certificate."""
        if self.ca_file:
            self.pem()

    def hint(self, problem: CertificateProblem | None) -> str:
        """Return what the operator may change."""
        if problem is not None and problem in HINTS:
            return HINTS[problem]
        if problem in ("name", "address"):
            return (
                f"Set {self.address_setting} to a name in the certificate, "
                "or add this name to the certificate."
            )
        variable = f"USHER_{self.setting.upper()}"
        if self.ca_file:
            return f"{self.ca_file} ({self.setting}, {variable}) lacks its authority: name the right file."
        return f"Name the file with the certificate of its authority: {self.setting}, {variable}."

    def unusable_file(self, error: OSError) -> BadSetting:
        reason = "it has no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        return BadSetting(
            f"{self.ca_file} cannot be used as a file of certificates: {reason}.",
            hint=f"Correct {self.setting} (USHER_{self.setting.upper()}): the path of a file in PEM form.",
        )


SYSTEM_AUTHORITIES: Final = TrustedAuthorities()
