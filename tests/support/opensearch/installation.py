"""The OpenSearch that scripts/opensearch downloads from Maven, and the command of one node."""

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TREE = Path(__file__).parents[3]
SCRIPT = TREE / "scripts" / "opensearch"
SECURITY_PLUGIN = "org.opensearch.security.OpenSearchSecurityPlugin"
PLUGINS = (
    "org.opensearch.transport.Netty4Plugin",
    "org.opensearch.analysis.common.CommonAnalysisPlugin",
    "org.opensearch.painless.PainlessPlugin",
    "org.opensearch.index.mapper.MapperExtrasPlugin",
    "org.opensearch.index.reindex.ReindexPlugin",
)
# Short starts matter more than the speed of code that runs for hours; `fast` nodes of benchmarks use both compilers.
TEST_OPTIONS = ("-XX:TieredStopAtLevel=1",)
OPTIONS = ("-XX:+UseSerialGC", "-Dlog4j2.disable.jmx=true", "-Xshare:auto")
LOG_CONFIG = """
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1.} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True, slots=True)
class OpenSearchInstallation:
    """The jars of OpenSearch and the compiled node."""

    folder: Path

    def class_path(self, *, secure: bool) -> str:
        """The jars in the order in which scripts/opensearch has them: else Java ignores the archive of classes."""
        jars = [self.folder / "node.jar", *sorted((self.folder / "jars").glob("*.jar"))]
        if secure:
            jars += sorted((self.folder / "security").glob("*.jar"))
        return ":".join(map(str, jars))

    def command(
        self, home: Path, lock: Path, *, heap_mb: int, secure: bool, fast: bool
    ) -> list[str]:
        """The command of a node, which reads home/config and stops when no process holds the lock."""
        heap = (f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m")
        archive = self.folder / "node.jsa"
        shared = (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()
        options = (*heap, *OPTIONS, *shared, *(() if fast else TEST_OPTIONS))
        plugins = (*PLUGINS, *((SECURITY_PLUGIN,) if secure else ()))
        path = self.class_path(secure=secure)
        return ["java", *options, "-cp", path, "ClusterNode", str(home), str(lock), *plugins]

    def password_hash(self, password: str) -> str:
        """The hash of a password for the file of users of the security plugin."""
        path = self.class_path(secure=True)
        command = ["java", "-cp", path, "org.opensearch.security.tools.Hasher", "-p", password]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        return result.stdout.split()[-1]

    @property
    def security_config(self) -> Path:
        """The default configuration that the security plugin comes with."""
        return self.folder / "security" / "config"


@cache
def find_installation() -> OpenSearchInstallation | None:
    """Download OpenSearch if necessary; None without Maven, a JDK or a registry."""
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        return None
    result = subprocess.run([SCRIPT], capture_output=True, text=True, check=True)
    return OpenSearchInstallation(Path(result.stdout.strip())) if result.stdout.strip() else None


def require_installation() -> OpenSearchInstallation:
    """The installation; without one the test is skipped."""
    installation = find_installation()
    if installation is None:
        pytest.skip(
            "OpenSearch is not available: scripts/opensearch needs Maven, a JDK and Maven Central"
        )
    return installation
