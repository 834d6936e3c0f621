"""Puts modules that stand for an engine's into sys.modules, so that the adapters' tests need no engine."""

import importlib.machinery
import sys
import types


def module(name, **contents):
    """Makes a module with its parents. Its contents can be imported from it."""
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules:
        module(parent)
    made = sys.modules.get(name)
    if made is None:
        made = sys.modules[name] = types.ModuleType(name, "A stand-in, for tests.")
        made.__spec__ = importlib.machinery.ModuleSpec(name, None)
        made.__path__ = []
        if parent:
            setattr(sys.modules[parent], name.rpartition(".")[2], made)
    vars(made).update(contents)
    for value in contents.values():
        if isinstance(value, type) and value.__module__.startswith("stand_in"):
            value.__module__ = name
    return made


def remove(engine):
    """Forgets an engine's modules."""
    for name in [name for name in sys.modules if name == engine or name.startswith(engine + ".")]:
        del sys.modules[name]


def block_quantise(rows, block=128):
    """float8_e4m3fn codes of 2-byte rows and a float32 scale for each block of a row."""
    import torch

    blocks = rows.float().unflatten(-1, (-1, block))
    scales = blocks.abs().amax(dim=-1).clamp(min=1e-4) / 448
    codes = (blocks / scales.unsqueeze(-1)).flatten(-2).to(torch.float8_e4m3fn)
    return codes, scales


def decode(codes, scales):
    """float32 rows of codes and scales. A row may have any number of scales that divides it."""
    if scales is None:
        return codes.float()
    return (codes.float().unflatten(-1, (scales.shape[-1], -1)) * scales.unsqueeze(-1)).flatten(-2)
