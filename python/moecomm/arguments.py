"""The common part of the arguments of dispatch and combine."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple, Type, TypeVar

from .arrays import NOTHING, Array
from .checks import Place, RowFormat, require_shape, take
from .layouts import Layout

Kind = TypeVar("Kind")


def require_kind(given: Any, kind: Type[Kind], what: str) -> Kind:
    """Requires one of the classes in parts.py. The error shows the value found, or only its type for an array."""
    if isinstance(given, kind):
        return given
    found = repr(given) if isinstance(given, (str, int, float)) else f"a {type(given).__name__}"
    raise TypeError(f"{what} is {found}, expected a {kind.__name__}")


class Arguments:
    """Checks the arguments of one call on a handle whose last route had `tokens` tokens. `known_rows` returns the
    number of tokens that arrived and the out rows, or None if it would have to wait."""

    def __init__(
        self,
        place: Place,
        layout: Layout,
        tokens: int,
        known_rows: Callable[[], Optional[Tuple[int, int]]],
    ):
        self._place = place
        self._layout = layout
        self.tokens = tokens
        self._known_rows = known_rows
        self.arrays: List[Any] = []  # all arrays given, to be kept alive
        self.room: Optional[int] = None  # the fewest rows among those whose rows the route decides
        self.reusable = True  # the arguments pass for every route of these tokens that brings no more rows than `room`

    def _take(
        self, array: Any, what: str, dtypes: Sequence[str] = (), writes: bool = False, strided: bool = False
    ) -> Array:
        if array is None:
            return NOTHING
        self.arrays.append(array)
        return take(array, what, self._place, dtypes, writes, strided)

    def _per_token(self, found: Array, what: str, format: RowFormat, axes: str = "[tokens, hidden]") -> int:
        """The address of an array [tokens, row], which is required if there are tokens."""
        if not found.given and self.tokens > 0:
            raise ValueError(f"{what} is None, expected {axes} with {self.tokens} rows of {format}")
        return self._per_token_or_none(found, what, format, axes)

    def _per_token_or_none(self, found: Array, what: str, format: RowFormat, axes: str = "[tokens, hidden]") -> int:
        format.require(found, what)
        if found.is_array:
            require_shape(found, what, (self.tokens, found.shape[-1]), axes)
        return found.address

    def _of_shape(
        self, array: Any, what: str, dtype: str, shape: Tuple[int, ...], axes: str, writes: bool = True
    ) -> int:
        """The address of an array of exactly this shape, which `axes` describes in words."""
        found = self._take(array, what, (dtype,), writes)
        require_shape(found, what, shape, axes)
        return found.address

    def _wait_counter(self, array: Any, what: str) -> int:
        return self._of_shape(array, what, "int64", (self._layout.nranks,), "[nranks]")

    def _note_room(self, rows: int) -> None:
        if self._layout.rows is None:
            self.room = rows if self.room is None else min(self.room, rows)

    def _least(self) -> Optional[int]:
        """The out rows that arrays must have, or None if that is not known."""
        if self._layout.rows is not None:
            return self._layout.rows
        known = self._known_rows()
        return known[1] if known else None
