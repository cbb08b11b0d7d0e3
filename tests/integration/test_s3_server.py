"""The S3 server and the proxy that other tests use do what these tests rely on."""

import http.client
from typing import Final

import pytest

from support.s3.fault_proxy import FaultProxy, Faults
from support.s3.requests import S3Account, S3Requests
from support.s3.server import OPERATOR, S3Server

BODY: Final = bytes(range(256)) * 1000


def test_it_checks_credentials_and_signatures(s3_server: S3Server, bucket: str) -> None:
    wrong_key = S3Requests(s3_server.endpoint, S3Account("stranger", OPERATOR.secret_key))
    wrong_secret = S3Requests(s3_server.endpoint, S3Account(OPERATOR.access_key, "wrong-secret"))
    for requests, code in (
        (wrong_key, "InvalidAccessKeyId"),
        (wrong_secret, "SignatureDoesNotMatch"),
    ):
        answer = requests.send("PUT", f"/{bucket}/key", BODY)
        assert (answer.status, answer.values("Code")) == (403, [code])
    assert s3_server.requests.keys(bucket) == []
    missing = s3_server.requests.send("PUT", "/no-such-bucket/key", BODY)
    assert (missing.status, missing.values("Code")) == (404, ["NoSuchBucket"])


def test_objects_survive_a_kill(own_s3_server: S3Server) -> None:
    own_s3_server.create_bucket("bucket")
    own_s3_server.requests.put("bucket", "folder/key", BODY)
    own_s3_server.restart()
    assert own_s3_server.requests.keys("bucket") == ["folder/key"]
    assert own_s3_server.requests.get("bucket", "folder/key") == BODY


def test_the_proxy_passes_damages_and_cuts_messages(s3_proxy: FaultProxy, bucket: str) -> None:
    requests = S3Requests(s3_proxy.endpoint, OPERATOR)
    requests.put(bucket, "key", BODY)
    assert requests.get(bucket, "key") == BODY
    assert s3_proxy.requests == [f"PUT /{bucket}/key HTTP/1.1", f"GET /{bucket}/key HTTP/1.1"]
    s3_proxy.faults = Faults(path="/key", damage_download=True)
    damaged = requests.get(bucket, "key")
    assert len(damaged) == len(BODY)
    assert sum(a != b for a, b in zip(damaged, BODY, strict=True)) == 1
    s3_proxy.faults = Faults(path="/key", damage_upload=True)
    assert requests.send("PUT", f"/{bucket}/key", BODY).status == 400
    s3_proxy.faults = Faults(path="/key", cut_download_after=100_000)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        requests.get(bucket, "key")
    s3_proxy.faults = Faults(path="/key", cut_upload_after=1000)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        requests.put(bucket, "key", BODY)
    s3_proxy.faults = Faults(refuse=True)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        requests.get(bucket, "key")
    s3_proxy.faults = Faults()
    assert requests.get(bucket, "key") == BODY
