"""Secrets are taken out of a text, and nothing else is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogen_persistent_memory._secrets import redact

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq8\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("my key is sk-" + "a1B2" * 10, "my key is [REDACTED:api-key]"),
        ("sk-proj-" + "Ab1_" * 20 + " works", "[REDACTED:api-key] works"),
        ("use sk-ant-api03-" + "x9Y8" * 10, "use [REDACTED:api-key]"),
        ("ghp_" + "a1B2c3" * 6, "[REDACTED:api-key]"),
        ("aws AKIAIOSFODNN7EXAMPLE here", "aws [REDACTED:api-key] here"),
        ("slack xoxb-1234567890-abcdefghij", "slack [REDACTED:api-key]"),
        ("AIza" + "SyA1234567890abcdefghijklmnopqrstuv", "[REDACTED:api-key]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123", "[REDACTED:jwt]"),
        ("Authorization: Bearer abcdef1234567890abcdef", "Authorization: Bearer [REDACTED:token]"),
        ("My password is hunter2.", "My password is [REDACTED:password]."),
        (
            "the password for the staging server is Tr0ub4dor&3",
            "the password for the staging server is [REDACTED:password]",
        ),
        ("the password is 'correct horse'", "the password is '[REDACTED:password]'"),
        ("pwd=s3cr3t;port=5432", "pwd=[REDACTED:password];port=5432"),
        ("DB_PASSWORD=hunter", "DB_PASSWORD=[REDACTED:password]"),
        ('{"api_key": "abc123def"}', '{"api_key": "[REDACTED:api-key]"}'),
        ("My PIN is 4821", "My PIN is [REDACTED:pin]"),
        (
            "postgresql://app:s3cret@db.example.org:5432/app",
            "postgresql://app:[REDACTED:password]@db.example.org:5432/app",
        ),
        ("card 4111 1111 1111 1111, thanks", "card [REDACTED:card], thanks"),
        ("5500-0055-5555-5559", "[REDACTED:card]"),
        ("pay to DE89 3704 0044 0532 0130 00 please", "pay to [REDACTED:iban] please"),
        (f"here: {KEY} done", "here: [REDACTED:private-key] done"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE", "[REDACTED:private-key]"),
    ],
)
def test_a_secret_is_redacted(text: str, redacted: str) -> None:
    assert redact(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "commit 5f4dcc3b5aa765d61d8327deb882cf99a1b2c3d4",
        "order 1234567890123456",
        "550e8400-e29b-41d4-a716-446655440000",
        "call me at +49 30 1234 5678 or (555) 123-4567",
        "the password is wrong",
        "I forgot my password. Is the password case-sensitive?",
        "the token is expired and the secret is out",
        "api_key=os.environ['OPENAI_API_KEY']",
        "password: ${DB_PASSWORD}",
        "a task-oriented, risk-averse, sk-learn user",
        "https://example.org:8080/path@home",
        "max_tokens=100, tokens: 4096, max_token=100",
        "The user prefers TypeScript. 2024-05-01 12:00:01",
        "3.14159265358979323846",
        "0000 0000 0000 0000",
        "ISBN 978-3-16-148410-0",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


@given(st.text(max_size=300))
def test_redacting_again_changes_nothing(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "1",
        "1 ",
        "eyJ",
        "sk-",
        "sk-a",
        "password ",
        "password is ",
        "password=",
        "a://b:",
        "Bearer ",
        "-----BEGIN ",
        "DE12 ",
        " ",
        "A_",
        "'",
        "GB82 WEST",
        "AA_" * 5,
    ],
)
def test_a_megabyte_takes_a_moment(unit: str) -> None:
    text = (unit * (1_000_000 // len(unit) + 1))[:1_000_000]
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 5
