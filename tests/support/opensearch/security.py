"""TLS and users of a cluster of OpenSearch, by its security plugin."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from support.opensearch.installation import OpenSearchInstallation

ADMIN: Final = ("admin", "password-of-the-administrator")
# The users come from internal_users.yml, which ClusterSecurity writes.
COPIED_FILES: Final = (
    "action_groups.yml",
    "allowlist.yml",
    "audit.yml",
    "config.yml",
    "nodes_dn.yml",
    "roles.yml",
    "roles_mapping.yml",
    "tenants.yml",
)
USERS: Final = """
_meta: {{type: internalusers, config_version: 2}}
admin: {{hash: "{hash}", backend_roles: [admin]}}
"""


@dataclass(frozen=True, slots=True)
class ClusterSecurity:
    """A certificate for loopback and the hash of the administrator's password."""

    installation: OpenSearchInstallation
    certificate: Path
    key: Path
    admin_hash: str

    def settings(self) -> dict[str, Any]:
        prefix = "plugins.security"
        files = {"pemcert": "node.pem", "pemkey": "node.key", "pemtrustedcas": "node.pem"}
        return {
            **{f"{prefix}.ssl.transport.{name}_filepath": file for name, file in files.items()},
            **{f"{prefix}.ssl.http.{name}_filepath": file for name, file in files.items()},
            f"{prefix}.ssl.transport.enforce_hostname_verification": False,
            f"{prefix}.ssl.http.enabled": True,
            f"{prefix}.allow_default_init_securityindex": True,
            f"{prefix}.nodes_dn": ["CN=node"],
            f"{prefix}.restapi.roles_enabled": ["all_access"],
            f"{prefix}.audit.type": "noop",
        }

    def write(self, config: Path) -> None:
        """Write certificate, key and users into the configuration of a node."""
        shutil.copy(self.certificate, config / "node.pem")
        shutil.copy(self.key, config / "node.key")
        folder = config / "opensearch-security"
        folder.mkdir(exist_ok=True, mode=0o700)
        for name in COPIED_FILES:
            shutil.copy(self.installation.security_config / name, folder / name)
        (folder / "internal_users.yml").write_text(USERS.format(hash=self.admin_hash))


def make_security(installation: OpenSearchInstallation, directory: Path) -> ClusterSecurity:
    """Create the certificate, which is its own authority; without openssl the test is skipped."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    directory.mkdir(parents=True, exist_ok=True)
    certificate, key = directory / "node.pem", directory / "node.key"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    return ClusterSecurity(installation, certificate, key, installation.password_hash(ADMIN[1]))
