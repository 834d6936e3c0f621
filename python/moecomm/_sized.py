"""The base of the C interface's structs."""

import ctypes
from typing import Any, Dict


class Sized(ctypes.Structure):
    """A struct whose first field is its size, set here as the C initializers do. Keywords set other fields."""

    _defaults_: Dict[str, int] = {}

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **{**self._defaults_, **fields})
