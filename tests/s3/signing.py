"""Signed requests to a server's own interface: what no library of the project asks for.

Only buckets and their policies are made with it; graphs go through Lance and obstore.
"""

from __future__ import annotations

import hashlib
import hmac
import urllib.request
from datetime import UTC, datetime
from urllib.parse import urlsplit

REGION = "us-east-1"


def signed_request(
    endpoint: str,
    method: str,
    path: str,
    *,
    access: str,
    secret: str,
    query: str = "",
    body: bytes = b"",
) -> bytes:
    """Send one request with an AWS signature (version 4) and return the answer's body."""
    now = datetime.now(UTC)
    moment, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    host, digest = urlsplit(endpoint).netloc, hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": moment}
    signed = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = "\n".join([method, path, query, lines, signed, digest])
    scope = f"{day}/{REGION}/s3/aws4_request"
    summary = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = "\n".join(["AWS4-HMAC-SHA256", moment, scope, summary])
    key = f"AWS4{secret}".encode()
    for part in (day, REGION, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    request = urllib.request.Request(  # noqa: S310 - a loopback address
        f"{endpoint}{path}" + (f"?{query}" if query else ""),
        data=body or None,
        method=method,
        headers={
            **headers,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={access}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return bytes(answer.read())
