"""How the adapters find the classes and functions of an engine: when they are needed, never when moecomm is imported.
moecomm.vllm and moecomm.sglang use it. Nothing here imports torch."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from types import SimpleNamespace
from typing import Any, Mapping, NamedTuple


class MissingInterface(ImportError):
    """An engine lacks a class or function that an adapter needs. The message names it, its module and the version."""


class Wanted(NamedTuple):
    """A class or function of an engine. `name` empty: the module itself. `optional`: None if it is not there."""

    module: str
    name: str = ""
    optional: bool = False


def version_of(engine: str) -> str:
    """The version of an installed distribution, or a word that says that there is none."""
    try:
        return importlib.metadata.version(engine)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _look_up(adapter: str, engine: str, known: str, wanted: Wanted) -> Any:
    what = f"{wanted.name} in {wanted.module}" if wanted.name else wanted.module
    try:
        found = importlib.import_module(wanted.module)
        return getattr(found, wanted.name) if wanted.name else found
    except (ImportError, AttributeError) as error:
        if wanted.optional:
            return None
        reason = f"{adapter} looked for {what}, but {engine} {version_of(engine)} does not have it ({error})"
        raise MissingInterface(f"{reason}. The interface is that of {known}") from error


def find(adapter: str, engine: str, known: str, wanted: Mapping[str, Wanted]) -> SimpleNamespace:
    """Imports the classes and functions of `wanted`, and returns them under its keys.

    adapter  the module of ours that asks, for messages
    engine   the engine's distribution and module
    known    the versions of the engine that are known to have the interface

    Raises MissingInterface."""
    try:
        importlib.import_module(engine)
    except ImportError as error:
        raise MissingInterface(f"{adapter} needs {engine}, which cannot be imported ({error})") from error
    return SimpleNamespace(**{key: _look_up(adapter, engine, known, one) for key, one in wanted.items()})


def is_chosen(variable: str) -> bool:
    """Whether an environment variable, a list with commas, names moecomm. Engines load every plugin that is installed
    if the variable is not set, but an engine must not change because a package was installed beside it."""
    return "moecomm" in (name.strip() for name in os.environ.get(variable, "").split(","))
