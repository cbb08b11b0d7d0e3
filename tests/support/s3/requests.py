"""Signed requests to an S3 server, with the standard library only: the tests check with them what Usher stored."""

import hashlib
import hmac
import http.client
import re
import ssl
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Account:
    access_key: str
    secret_key: str


@dataclass(frozen=True, slots=True)
class S3Response:
    status: int
    body: bytes

    def values(self, element: str) -> list[str]:
        """The texts of the elements with this name."""
        return re.findall(f"<{element}>([^<]*)</{element}>", self.body.decode())


@dataclass(frozen=True, slots=True)
class S3Requests:
    endpoint: str
    account: S3Account
    ca_file: str = ""  # of the authority of the server's certificate, with TLS

    def send(
        self, method: str, path: str, body: bytes = b"", query: dict[str, str] | None = None
    ) -> S3Response:
        """Send one signed request; `path` is /bucket or /bucket/key."""
        host = urlsplit(self.endpoint).netloc
        names = sorted((query or {}).items())
        text = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in names)
        headers = signed_headers(self.account, method, (host, quote(path), text), body)
        connection = self._connect(host)
        try:
            target = f"{quote(path)}?{text}" if text else quote(path)
            connection.request(method, target, body or None, headers)
            response = connection.getresponse()
            return S3Response(response.status, response.read())
        finally:
            connection.close()

    def _connect(self, host: str) -> http.client.HTTPConnection:
        if not self.ca_file:
            return http.client.HTTPConnection(host, timeout=30)
        context = ssl.create_default_context(cafile=self.ca_file)
        return http.client.HTTPSConnection(host, timeout=30, context=context)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """The keys of a bucket, at most 1,000."""
        answer = self.send("GET", f"/{bucket}", query={"list-type": "2", "prefix": prefix})
        assert answer.status == 200, answer
        return answer.values("Key")

    def unfinished_uploads(self, bucket: str) -> list[str]:
        """The keys of multipart uploads that are neither complete nor aborted."""
        answer = self.send("GET", f"/{bucket}", query={"uploads": ""})
        assert answer.status == 200, answer
        return answer.values("Key")

    def get(self, bucket: str, key: str) -> bytes:
        answer = self.send("GET", f"/{bucket}/{key}")
        assert answer.status == 200, answer
        return answer.body

    def put(self, bucket: str, key: str, body: bytes) -> None:
        answer = self.send("PUT", f"/{bucket}/{key}", body)
        assert answer.status == 200, answer

    def delete(self, bucket: str, key: str) -> None:
        answer = self.send("DELETE", f"/{bucket}/{key}")
        assert answer.status == 204, answer


def signed_headers(
    account: S3Account, method: str, target: tuple[str, str, str], body: bytes
) -> dict[str, str]:
    """The headers of a request with its signature; `target` is host, path and query."""
    host, path, query = target
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body)
    headers = {
        "host": host,
        "x-amz-checksum-sha256": b64encode(digest.digest()).decode(),
        "x-amz-content-sha256": digest.hexdigest(),
        "x-amz-date": time,
    }
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{digest.hexdigest()}"
    scope = f"{time[:8]}/{REGION}/s3/aws4_request"
    summary = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{account.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signed = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{summary}"
    signature = hmac.new(key, signed.encode(), "sha256").hexdigest()
    credential = f"Credential={account.access_key}/{scope}"
    authorization = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": authorization}
