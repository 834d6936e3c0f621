"""Loads chosen modules of an engine from its unpacked wheel (scripts/engines.sh), without a GPU and without the
engine's dependencies. A process that has loaded an engine cannot load another version of it, so tests load engines in
processes of their own. engine_vllm.py and engine_sglang.py list the engine's modules and the stand-ins for the rest."""

import ast
import enum
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import pathlib
import sys
import types

ENGINES = pathlib.Path(__file__).resolve().parents[2] / "build/engines"


def missing(engine):
    """Why tests of an engine skip; None if its wheel is here."""
    return None if (ENGINES / engine / engine).exists() else f"{engine} is not here: scripts/engines.sh {engine}"


class _NotLoaded(type):
    """The type of names in modules that are not loaded: they may be imported and stand in annotations."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise LookupError(f"{cls.__module__}.{cls.__name__}.{name}: the module is not loaded")

    def __call__(cls, *_, **__):
        raise LookupError(f"{cls.__module__}.{cls.__name__}: the module is not loaded")


class _StandIn(types.ModuleType):
    """A module that is not loaded."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        inner = f"{self.__name__}.{name}"
        if any(isinstance(finder, _Finder) and finder.knows(inner) for finder in sys.meta_path):
            return importlib.import_module(inner)
        made = _NotLoaded(name, (), dict(__module__=self.__name__))
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, engine, loaded, provided):
        self.engine, self.loaded, self.provided = engine, frozenset(loaded), provided

    def knows(self, name):
        return name in self.loaded or name in self.provided

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != self.engine and name not in self.provided:
            return None
        place = ENGINES / self.engine / name.replace(".", "/")
        if name not in self.loaded:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if place.is_dir():
            return importlib.util.spec_from_file_location(name, place / "__init__.py", submodule_search_locations=[])
        return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        vars(module).update(self.provided.get(module.__name__, {}))


def load(engine, loaded, provided):
    """Makes an engine importable.

    loaded    names of modules that come from the wheel. Without its __init__, a package of the engine is empty
    provided  {module: {name: value}} of modules that do not, also those of other packages

    Returns the version."""
    if not any(isinstance(finder, _Finder) and finder.engine == engine for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(engine, loaded, provided))
        sys.path.append(str(ENGINES / engine))  # for its metadata
    return importlib.metadata.version(engine)


# ---- Comparing -------------------------------------------------------------------------------------------------------


def _parameters(function):
    return list(inspect.signature(function).parameters.values())


def misfits(ours, theirs):
    """Why a function cannot be called in every way in which another one can: a list of sentences."""
    mine, found = _parameters(ours), []
    kinds = {one.kind for one in mine}
    names = {one.name: one for one in mine}
    for place, wanted in enumerate(_parameters(theirs)):
        if wanted.kind in (wanted.VAR_POSITIONAL, wanted.VAR_KEYWORD):
            continue
        one = names.get(wanted.name)
        if one is None:
            if wanted.VAR_KEYWORD not in kinds and not (wanted.kind == wanted.POSITIONAL_ONLY and place < len(mine)):
                found.append(f"has no parameter {wanted.name}")
        elif one.default is one.empty and wanted.default is not wanted.empty:
            found.append(f"needs {wanted.name}, which may be left out")
        elif wanted.kind != wanted.KEYWORD_ONLY and mine.index(one) != place and wanted.VAR_POSITIONAL not in kinds:
            found.append(f"has {wanted.name} in another place")
    theirs_names = {one.name for one in _parameters(theirs)}
    for one in mine:
        if one.name not in theirs_names and one.default is one.empty and one.kind in (
            one.POSITIONAL_OR_KEYWORD,
            one.KEYWORD_ONLY,
        ):
            found.append(f"needs {one.name}, which is not passed")
    return found


def methods(kind):
    """{name: function} of a class's public methods and constructor, with those of its bases."""
    found = {}
    for name, value in inspect.getmembers_static(kind):
        value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if (name == "__init__" or not name.startswith("_")) and inspect.isfunction(value):
            found[name] = value
    return found


def _facts(kind):
    """The properties, beside the methods, that must be alike in two classes of the same name."""
    if issubclass(kind, enum.Enum):
        return {"members": {member.name: member.value for member in kind}}
    fields = getattr(kind, "_fields", None) or tuple(getattr(kind, "__dataclass_fields__", ()))
    return {"fields": tuple(fields), "abstract methods": sorted(getattr(kind, "__abstractmethods__", ()))}


def unlike(stand_in, real):
    """The differences between a stand-in's class or function and the engine's: a list of sentences. The real one must
    take every call that the stand-in takes."""
    name = getattr(real, "__name__", str(real))
    if not isinstance(real, type):
        return [f"{name} {sentence}" for sentence in misfits(real, stand_in)]
    found, theirs = [], methods(real)
    for what, value in _facts(stand_in).items():
        if value != _facts(real)[what]:
            found.append(f"{name}: {what} are {_facts(real)[what]}, in the stand-in {value}")
    if issubclass(real, (enum.Enum, tuple)):
        return found
    for method, function in methods(stand_in).items():
        if method not in theirs:
            found.append(f"{name} has no {method}")
        else:
            found += [f"{name}.{method} {sentence}" for sentence in misfits(theirs[method], function)]
    return found


def _defined(engine, module):
    """The names that a module's source binds outside of functions and classes; None if there is no such module."""
    place = ENGINES / engine / module.replace(".", "/")
    package = module if place.is_dir() else module.rpartition(".")[0]
    place = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not place.exists():
        return None
    found, left = set(), list(ast.parse(place.read_text()).body)
    while left:
        node = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if node.names[0].name == "*":
                found.update(_defined(engine, importlib.util.resolve_name("." * node.level + node.module, package)) or ())
            found.update((one.asname or one.name).partition(".")[0] for one in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
        else:
            left += [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt)]
    return found


def undefined(engine, wanted):
    """Which of (module, name) the engine's sources do not have: a list of sentences. An empty name: the module alone."""
    found = []
    for module, name in wanted:
        names = _defined(engine, module)
        if names is None or name and name not in names:
            found.append(f"{module} has no {name}" if names is not None else f"there is no {module}")
    return found


def class_misfits(name, ours, theirs, engine):
    """The reasons why our class, derived from an abstract one of the engine, cannot take the place of the engine's own
    class: {kind of finding: sentences}. `engine`: the prefix of the names of the engine's modules."""
    found = {
        "abstract": [f"{name} lacks {method}" for method in sorted(getattr(ours, "__abstractmethods__", ()))],
        "absent": [],
        "signature": [],
        "inherited": [],
    }
    mine = methods(ours)
    for method, function in methods(theirs).items():
        if method not in mine:
            found["absent"].append(f"{name} has no {method}")
            continue
        found["signature"] += [f"{name}.{method} {sentence}" for sentence in misfits(mine[method], function)]
        if mine[method].__module__.startswith(engine) and mine[method] is not function:
            found["inherited"].append(f"{name}.{method} is that of {mine[method].__qualname__}")
    return {kind: sentences for kind, sentences in found.items() if sentences}
