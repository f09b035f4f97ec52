"""Which requests to a Chroma server may be made twice."""

import pytest

from autogen_persistent_memory.storage.chroma.server import is_repeatable


@pytest.mark.parametrize(
    ("method", "path", "content", "repeatable"),
    [
        ("GET", "/api/v2/heartbeat", b"", True),
        ("post", "/api/v2/tenants/t/databases/d/collections/c/query", b"", True),
        ("post", "/api/v2/tenants/t/databases/d/collections/c/upsert", b"", True),
        ("post", "/api/v2/tenants/t/databases/d/collections/c/delete", b"", True),
        ("post", "/api/v2/tenants/t/databases/d/collections/c/add", b"", False),
        ("post", "/api/v2/tenants/t/databases/d/collections", b'{"get_or_create":true}', True),
        ("post", "/api/v2/tenants/t/databases/d/collections", b'{"get_or_create":false}', False),
        ("put", "/api/v2/tenants/t/databases/d/collections/c", b"", False),
        ("delete", "/api/v2/tenants/t/databases/d/collections/c", b"", False),
    ],
)
def test_only_reads_and_writes_by_id_are_idempotent(method: str, path: str, content: bytes, repeatable: bool) -> None:
    assert is_repeatable(method, f"http://host:8000{path}", content) is repeatable
