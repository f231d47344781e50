"""What stores and libraries say, as they said it, and what is made of it."""

from __future__ import annotations

import pytest

from omnigraph_lake.storage.objects.failures import Failure, failure_of, is_damage, unavailable
from omnigraph_lake.storage.objects.location import parse_root

pytestmark = pytest.mark.unit

OPTIONS = {"aws_access_key_id": "k", "aws_secret_access_key": "hush", "aws_region": "r"}
GET = "Generic S3 error: Error performing GET http://h/b/g/x in 1.4ms - "
ANSWER = GET + (
    'Server returned non-2xx status code: 403 Forbidden: <?xml version="1.0"?>\n'
    "<Error><Code>{}</Code><Message>It&#39;s so.</Message></Error>"
)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (ANSWER.format("NoSuchBucket"), Failure.BUCKET),
        (ANSWER.format("SignatureDoesNotMatch"), Failure.CREDENTIALS),
        (ANSWER.format("InvalidAccessKeyId"), Failure.CREDENTIALS),
        (ANSWER.format("ExpiredToken"), Failure.CREDENTIALS),
        (ANSWER.format("AuthorizationHeaderMalformed"), Failure.REGION),
        (ANSWER.format("AccessDenied"), Failure.FORBIDDEN),
        ("LanceError(IO): Failed to get AWS credentials: Provider", Failure.NO_CREDENTIALS),
        (GET + "HTTP error: error sending request", Failure.UNREACHABLE),
        ("No space left on device (os error 28)", Failure.OTHER),
    ],
)
def test_the_kind_of_a_failure_is_read_off_its_text(text: str, failure: Failure) -> None:
    assert failure_of(OSError(text)) is failure


def test_the_words_of_the_server_are_shown_and_its_envelope_is_not() -> None:
    root = parse_root("s3://b/g", storage_options=OPTIONS)

    error = unavailable(root, "read x", OSError(ANSWER.format("AccessDenied")))

    assert error.what == (
        "could not read x under s3://b/g: the credentials do not allow it (AccessDenied: It's so)"
    )


def test_where_a_library_was_when_it_failed_is_not_shown() -> None:
    root = parse_root("/data/g")

    error = unavailable(root, "read x", OSError("LanceError(IO): no, /build/lance/src/x.rs:1:2"))

    assert error.what == "could not read x under /data/g: LanceError(IO): no"


def test_a_secret_that_a_store_repeats_is_hidden() -> None:
    root = parse_root("s3://b/g", storage_options=OPTIONS)

    error = unavailable(root, "read x", OSError(f"{GET}hush was wrong"))

    assert "hush" not in str(error)


@pytest.mark.parametrize(
    ("error", "sign", "step"),
    [
        (OSError(28, "x"), "the disk is full", "Free space"),
        (OSError(122, "x"), "the disk is full", "Free space"),
        (OSError(13, "x"), "this user lacks permission", "Run it as a user"),
        (OSError(1, "x"), "this user lacks permission", "Run it as a user"),
        (OSError(30, "x"), "mounted for reading only", "Mount it for writing"),
        (OSError(24, "x"), "too many files are open", "ulimit -n"),
        (OSError(23, "x"), "too many files are open", "ulimit -n"),
        (OSError(36, "x"), "longer than the system allows", "Choose a shorter path"),
        (ValueError("Lance: decoding: x (os error 24), y.rs:1:2"), "too many files", "ulimit -n"),
        (OSError("no number"), "no number", "Check that the root exists"),
    ],
)
def test_every_number_of_the_system_has_a_step_of_its_own(
    error: Exception, sign: str, step: str
) -> None:
    told = unavailable(parse_root("/data/g"), "read x", error)

    assert sign in told.what
    assert step in told.next_step


def test_a_file_that_could_not_be_opened_is_no_damage() -> None:
    assert is_damage(ValueError("failed to get index statistics: unexpected end"))
    assert not is_damage(ValueError("failed to get index statistics: x (os error 24)"))
