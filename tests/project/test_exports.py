import ast
import importlib.metadata
import inspect
import sys

import pytest

import autogen_persistent_memory as package

PUBLIC = {
    "SessionInfo",
    "memory_tools",
    "TOOL_PROMPT",
    "CallableEmbedding",
    "ChromaEmbedding",
    "CloudStore",
    "EmbeddedStore",
    "Embedding",
    "EmbeddingMismatchError",
    "Extractor",
    "Fact",
    "MemoryHit",
    "MemoryRecord",
    "MemoryStore",
    "Message",
    "MiniLMEmbedding",
    "ModelExtractor",
    "NamespaceError",
    "PersistentMemory",
    "PersistentMemoryError",
    "ProfileMemory",
    "Recall",
    "RecallPolicy",
    "RuleExtractor",
    "SchemaVersionError",
    "ServerStore",
    "SessionMemory",
    "StoreLockedError",
    "StoreUnavailableError",
    "TemporaryStore",
    "__version__",
    "export_memories",
    "import_memories",
    "register_embedding",
    "snapshot",
}


def test_the_package_exports_exactly_its_public_names() -> None:
    starred: dict[str, object] = {}
    exec(f"from {package.__name__} import *", starred)
    assert set(package.__all__) == set(dir(package)) == starred.keys() - {"__builtins__"} == PUBLIC
    visible = {name for name, value in vars(package).items() if not (name.startswith("_") or inspect.ismodule(value))}
    assert visible - {"TYPE_CHECKING"} == PUBLIC - {"__version__"}


def test_a_missing_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'autogen_persistent_memory' has no attribute 'PersistantMemory'"):
        _ = package.PersistantMemory  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'PersistantMemory'"):
        exec(f"from {package.__name__} import PersistantMemory")


def test_the_version_is_the_installed_one() -> None:
    assert package.__version__ == importlib.metadata.version("autogen-persistent-memory")


def test_every_public_class_and_method_has_a_docstring() -> None:
    undocumented = [
        f"{name}.{member}"
        for name in PUBLIC - {"__version__"}
        for member, value in inspect.getmembers(getattr(package, name))
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and (getattr(value, "__module__", None) or value.fget.__module__).startswith("autogen_persistent_memory")
        and not inspect.getdoc(value)
    ]
    assert undocumented == []
    assert all(inspect.getdoc(getattr(package, name)) for name in PUBLIC - {"__version__"})


def test_errors_have_one_root_and_bad_names_are_also_value_errors() -> None:
    errors = [value for value in vars(package).values() if inspect.isclass(value) and issubclass(value, Exception)]
    assert all(issubclass(error, package.PersistentMemoryError) for error in errors)
    assert [error for error in errors if issubclass(error, ValueError)] == [package.NamespaceError]


def test_type_checkers_without_a_plugin_see_that_every_setting_has_a_default() -> None:
    """They understand `Field(default=5)`, but treat `Field(5)` as a required argument."""
    source = inspect.getsource(sys.modules[package.RecallPolicy.__module__])
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    fields = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Field"]
    assert len(fields) > len(package.RecallPolicy.model_fields)
    assert [ast.unparse(field) for field in fields if field.args] == []
