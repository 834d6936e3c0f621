"""What the arguments of dispatch and combine share."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

from .arrays import NOTHING, Array
from .checks import Place, RowFormat, require_shape, take
from .layouts import Layout


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

    def _wait_counter(self, array: Any) -> int:
        counter = self._take(array, "cumulative_wait_ns", ("int64",), writes=True)
        require_shape(counter, "cumulative_wait_ns", (self._layout.nranks,), "[nranks]")
        return counter.address

    def _note_room(self, rows: int) -> None:
        if self._layout.rows is None:
            self.room = rows if self.room is None else min(self.room, rows)

    def _least(self) -> Optional[int]:
        """The out rows that arrays must have, or None if that is not known."""
        if self._layout.rows is not None:
            return self._layout.rows
        known = self._known_rows()
        return known[1] if known else None
