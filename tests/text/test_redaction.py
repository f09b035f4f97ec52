"""Secrets are removed from a text, and nothing else is."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autogen_persistent_memory.text.redaction import may_hold_secret, names_secret, redact, without_secrets

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


@pytest.mark.parametrize(
    "text",
    [
        "password: the form does not submit",
        "The login page has two fields. Password: the form rejects mine",
        "Password: must be at least 12 characters",
        "Password: (at least 8 characters)",
        "password: users keep forgetting theirs",
        "reset password: click on the link in the mail",
        "Issue with the password: we cannot reset it",
        "Two questions about the password: which rules apply, and who set them?",
        "password: don't share it",
        "password: wrong again",
        "password: required",
        "Password: see https://wiki.example.org/passwords2",
        "Username: Password: Remember me",
        "password: n/a",
        "Password: ...",
        "password: [hidden]",
        "API key: see the vault",
        "api key: ask Bob for one",
        "private key: the file is in ~/.ssh",
        "access token: expired yesterday",
        "passphrase: the one that you sent",
        "the passphrase is something everybody should remember",
        "def login(user: str, password: str) -> None:",
        "password: Optional[str] = None",
        "password: VARCHAR(255) NOT NULL",
        "client.login(user=args.user, password=args.password)",
        "password: getpass.getpass()",
    ],
)
def test_a_sentence_about_a_password_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("password: swordfish", "password: [REDACTED:password]"),
        ("Password: Swordfish", "Password: [REDACTED:password]"),
        ("password:hunter", "password:[REDACTED:password]"),
        ("user: bob, password: swordfish, port: 22", "user: bob, password: [REDACTED:password], port: 22"),
        ("username: admin password: letmein host: db1", "username: admin password: [REDACTED:password] host: db1"),
        ("password: swordfish does not work any more", "password: [REDACTED:password] does not work any more"),
        ("password: monkey and the user is bob", "password: [REDACTED:password] and the user is bob"),
        ("password: use Tr0ub4dor&3 for now", "password: use [REDACTED:password] for now"),
        ("password: it is hunter2", "password: it is [REDACTED:password]"),
        ("password: the new one is Winter2024!", "password: the new one is [REDACTED:password]"),
        ("password: the2nd!x", "password: [REDACTED:password]"),
        ("wifi password: people", "wifi password: [REDACTED:password]"),
        ("password: password", "password: [REDACTED:password]"),
        ("DB_PASSWORD=reset", "DB_PASSWORD=[REDACTED:password]"),
        ("DB_PASSWORD: hunter", "DB_PASSWORD: [REDACTED:password]"),
        ('password: "the form"', 'password: "[REDACTED:password]"'),
        ("api key: abcdef", "api key: [REDACTED:api-key]"),
        ("password: data.dump", "password: [REDACTED:password]"),
        ("passphrase: correct horse battery staple", "passphrase: [REDACTED:password]"),
        ("my passphrase is correct horse battery staple.", "my passphrase is [REDACTED:password]."),
        (
            "recovery phrase: witch collapse practice feed shame open despair creek road again ice least",
            "recovery phrase: [REDACTED:password]",
        ),
    ],
)
def test_a_secret_is_not_mistaken_for_a_sentence_about_one(text: str, redacted: str) -> None:
    assert redact(text) == redacted


@given(st.text(max_size=300))
def test_redacting_again_changes_nothing(text: str) -> None:
    assert redact(redact(text)) == redact(text)


PIECES = ["API key", " ", " ", *"password passphrase token : = is the use form hunter2 ' , .".split()]  # noqa: SIM905


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_redacting_sentences_about_secrets_again_changes_nothing(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@given(
    st.text("abcXYZ019!#%&", min_size=6, max_size=20), st.sampled_from(["", "the ", "it is ", "use ", "please try "])
)
def test_text_that_does_not_look_like_a_word_is_redacted_after_a_colon(secret: str, lead: str) -> None:
    assume(any(sign.isdigit() for sign in secret) and any(sign.isalpha() for sign in secret))
    assert secret.rstrip("!") not in redact(f"password: {lead}{secret} for the server")


SETTINGS = "api_key apiKey X-Api-Key password db_passwd token azure_ad_token Authorization client_secret credentials"


@pytest.mark.parametrize("name", SETTINGS.split())
def test_a_setting_that_names_a_secret_is_known(name: str) -> None:
    assert names_secret(name)
    assert may_hold_secret(name)


@pytest.mark.parametrize("name", ["max_tokens", "model", "monkey", "keyword", "tokenizer", "base_url", "author"])
def test_other_settings_hold_no_secret(name: str) -> None:
    assert not names_secret(name)
    assert not may_hold_secret(name)


@pytest.mark.parametrize("name", ["default_headers", "auth", "token_url", "api_key_env"])
def test_a_setting_may_hold_a_secret_without_naming_one(name: str) -> None:
    assert may_hold_secret(name)
    assert not names_secret(name)


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
        "password: ",
        "password: the ",
        "password: the new one is ",
        "passphrase: correct horse ",
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
    started = time.thread_time()
    redact(text)
    assert time.thread_time() - started < 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ann:hunter2@example.org:8000 is gone", "[REDACTED]@example.org:8000 is gone"),
        ("wss://tok3n@host/x", "wss://[REDACTED]@host/x"),
        ("mail ann@example.org at 12:30", "mail ann@example.org at 12:30"),
        ("http://localhost:8000/api/v2: 404", "http://localhost:8000/api/v2: 404"),
        ("Connection refused [Errno 111]", "Connection refused [Errno 111]"),
    ],
)
def test_redaction_of_texts_in_errors(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
