"""Plans: calls of a handle for arrays of one shape, prepared once. Handle.plan() makes them.

A plan remembers the latest arguments that passed the handle's checks, and their struct (prepared.py). A call whose
arrays look the same replaces the pointers. In any other call the plan refuses arrays that differ from those that it was
made with, and the handle checks the rest. Decision 0109 says why."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from . import errors
from .arrays import NOTHING, Array, describe, stream_address
from .options import ARRAYS, COMBINE_DEFAULTS, DISPATCH_DEFAULTS, complete
from .parts import Ready
from .prepared import NO_FORM, ROW_TYPE_NAMES, NoForm, Prepared, Same, fields_beside_arrays, named_arrays, parts_of, same_as

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .handle import Handle
    from .options import CombineParts, DispatchParts

Arrays = Tuple[Any, ...]
Options = Mapping[str, Any]
Check = Callable[[int, Arrays, Dict[str, Any]], Tuple[Any, Any]]
_DEFAULTS = {"dispatch": DISPATCH_DEFAULTS, "route_dispatch": DISPATCH_DEFAULTS, "combine": COMBINE_DEFAULTS}


class Plan:
    """The calls of a handle for arrays of one shape and dtype. Handle.plan() makes it.

    A call does what the handle's call of the same name does with the plan's keywords. It takes any arrays of the shapes and
    dtypes that the plan was made with, or addresses of such memory, which cannot be checked. ValueError and TypeError name
    an array that differs. They also refuse a route of other tokens, and a tokens bound that has changed. A rank that
    refuses a call takes part in it, as in the handle's calls. A keyword that has arrays may be given again, with others.

    The plan keeps its handle alive, and the arrays among its keywords. It does not keep rows and outputs: they must live
    until the work has run, as in the handle's calls, or until complete(). After the handle's destroy() all calls raise
    InvalidUsage."""

    def __init__(self, handle: Handle, tokens: int, dispatch: Optional[Options], combine: Optional[Options]):
        self._handle, self._tokens, self._tokens_max = handle, tokens, handle._next_layout.tokens_max
        names = ("rows", "out_rows")
        sent = _take("dispatch", dispatch, names, tokens, handle._check_dispatch)
        self._route_dispatch = _Call("route_dispatch", names, *sent)
        self._dispatch = _Call("dispatch", names, *sent)
        names = ("rows", "out")
        self._combine = _Call("combine", names, *_take("combine", combine, names, tokens, handle._check_combine))
        self._same_ids: Same = same_as(None)  # the arrays of the latest route that has passed the checks
        self._same_weights: Same = same_as(None)

    @property
    def handle(self) -> Handle:
        """The handle that makes these calls."""
        return self._handle

    @property
    def tokens(self) -> int:
        """The tokens of this rank in each step."""
        return self._tokens

    def __repr__(self) -> str:
        calls = [call.name for call in (self._dispatch, self._combine) if call.planned]
        return f"<{type(self).__name__} of {' and '.join(calls)}, tokens {self._tokens}, {self._handle!r}>"

    def route_dispatch(
        self,
        topk_idx: Any,
        topk_weights: Any,
        rows: Any,
        out_rows: Any,
        *,
        stream: Any = None,
        **parts: Unpack[DispatchParts],
    ) -> None:
        """Handle.route_dispatch() with the plan's keywords. Collective.

        topk_idx, topk_weights  as in the handle's call; topk_weights may be None in one step and an array in the next
        rows, out_rows          arrays like the plan's
        parts                   cast, describe and payloads like the plan's, with other arrays
        stream                  as in the handle's call"""
        handle, call = self._handle, self._route_dispatch
        options = {**call.options, **parts} if parts else call.options
        try:
            prepared, ids, weights = self._find_route_dispatch(topk_idx, topk_weights, rows, out_rows, options)
            pointer, queue = handle._pointer or handle._require_alive(), 0 if stream is None else stream_address(stream)
            function = handle._library.moeRouteDispatch
            handle._native.call(function, pointer, ids, weights, self._tokens, prepared.reference, queue)
        except Exception as error:  # noqa: B902
            handle.take_part("route_dispatch", error, stream)
            raise
        handle._note_route(self._tokens)
        handle._note_dispatch(prepared, (topk_idx, topk_weights, rows, out_rows), options)

    def dispatch(self, rows: Any, out_rows: Any, *, stream: Any = None, **parts: Unpack[DispatchParts]) -> None:
        """Handle.dispatch() with the plan's keywords, along a route of the plan's tokens. Collective.

        rows, out_rows  arrays like the plan's
        parts           cast, describe and payloads like the plan's, with other arrays
        stream          as in the handle's call"""
        handle, call = self._handle, self._dispatch
        options = {**call.options, **parts} if parts else call.options
        try:
            prepared = self._find(call, handle._rows_due(), rows, out_rows, options)
            pointer, queue = handle._pointer or handle._require_alive(), 0 if stream is None else stream_address(stream)
            handle._native.call(handle._library.moeDispatch, pointer, prepared.reference, queue)
        except Exception as error:  # noqa: B902
            handle.take_part("dispatch", error, stream)
            raise
        handle._note_dispatch(prepared, (rows, out_rows), options)

    def combine(self, rows: Any, out: Any, *, stream: Any = None, **parts: Unpack[CombineParts]) -> None:
        """Handle.combine() with the plan's keywords, along a route of the plan's tokens. Collective.

        rows, out  arrays like the plan's
        parts      topk_weights, bias0, bias1, grads, ready and cumulative_wait_ns like the plan's, with other arrays
        stream     as in the handle's call"""
        handle, call = self._handle, self._combine
        options = {**call.options, **parts} if parts else call.options
        try:
            prepared = self._find(call, handle._rows_to_read(), rows, out, options)
            pointer, queue = handle._pointer or handle._require_alive(), 0 if stream is None else stream_address(stream)
            handle._native.call(handle._library.moeCombine, pointer, prepared.reference, queue)
        except Exception as error:  # noqa: B902
            handle.take_part("combine", error, stream, {"rows": rows, "out": out, **options})
            raise
        handle._note_combine(prepared, (rows, out), options)

    # ---- Structs -----------------------------------------------------------------------------------------------------

    def _find_route_dispatch(
        self, topk_idx: Any, topk_weights: Any, rows: Any, out_rows: Any, options: Options
    ) -> Tuple[Prepared, int, int]:
        """The struct for route_dispatch(), held, with its pointers set, and the addresses of the route's arrays."""
        handle, call = self._handle, self._route_dispatch
        bound = handle._next_layout.tokens_max
        try:
            ids, weights = self._same_ids(topk_idx), self._same_weights(topk_weights)
            found = call.find(bound, True, rows, out_rows, options, None)
            if found is not None:
                return found, ids, weights
        except NO_FORM:
            pass
        call.require((rows, out_rows), options)
        self._require_bound(bound)
        arrays = (topk_idx, topk_weights, rows, out_rows)
        given = call.with_said(arrays, options)
        prepared, ids, weights = handle._find_route_dispatch(arrays, self._tokens, given)
        if prepared.reusable:
            self._same_ids, self._same_weights = same_as(topk_idx), same_as(topk_weights)
            call.remember(bound, True, rows, out_rows, options, prepared)
        return prepared, ids, weights

    def _find(self, call: _Call, least: Optional[int], rows: Any, out: Any, options: Options) -> Prepared:
        """The struct for a call along a route. least: the rows of arrays at least; None: unknown, or the layout's."""
        handle = self._handle
        bound, unknown = handle._layout.tokens_max, least is None
        if handle._tokens == self._tokens:
            found = call.find(bound, unknown, rows, out, options, least)
            if found is not None:
                return found
        call.require((rows, out), options)
        if handle._tokens is not None:
            if handle._tokens != self._tokens:
                raise ValueError(f"the last route has {handle._tokens} tokens, expected {self._tokens} as in the plan")
            self._require_bound(bound)
        check = handle._find_combine if call is self._combine else handle._find_dispatch
        prepared = check((rows, out), call.with_said((rows, out), options))
        if prepared.reusable:
            call.remember(bound, unknown, rows, out, options, prepared)
        return prepared

    def _require_bound(self, bound: int) -> None:
        if bound != self._tokens_max:
            raise ValueError(f"the handle's tokens bound is {bound}, expected {self._tokens_max} as in the plan")


class _Known:
    """The latest arguments that passed the handle's checks, and functions that tell whether others look the same.

    prepared   their struct, which the handle's calls of the same form use too
    bound      the handle's tokens bound
    unknown    the rows that arrays must have were not known, or the layout decides them
    parts      the keywords but for their arrays
    words      of the struct
    rows, out  these arrays: their functions, and the indexes of the pointers in `words`
    others     arrays among the keywords: function, words of a struct, index of the pointer in them"""

    __slots__ = ("prepared", "bound", "unknown", "parts", "words", "rows", "rows_at", "out", "out_at", "others")

    def __init__(
        self, prepared: Prepared, bound: int, unknown: bool, arrays: Arrays, names: Sequence[str], options: Options
    ):
        self.prepared, self.bound, self.unknown = prepared, bound, unknown
        self.rows, self.out = map(same_as, arrays)
        self.words, (self.rows_at, self.out_at) = prepared.words(names)
        self.parts, more = parts_of(options)
        count = sum(array is not None for array in more)
        places = iter(prepared.places[len(prepared.places) - count :])
        nothing = [0], 0, 0  # the place of None
        self.others: List[Tuple[Same, Any, int]] = []
        for array in more:
            words, field, _ = next(places) if array is not None else nothing
            self.others.append((same_as(array), words, field))


class _Call:
    """A call of a plan.

    options   the plan's keywords, whose arrays are kept
    said      the values that follow from its arrays, as keywords; None: the plan has no such call, and refuses it"""

    def __init__(self, name: str, names: Sequence[str], arrays: Arrays, options: Options, said: Optional[Options]):
        self.name, self._names, self.options, self._said = name, names, options, said
        self._expected = dict(_described(zip(names, arrays), options))
        self._parts = parts_of(options)
        self._known: Optional[_Known] = None

    @property
    def planned(self) -> bool:
        return self._said is not None

    def with_said(self, arrays: Arrays, options: Options) -> Options:
        """Keywords for the handle's checks. Addresses need more of them than arrays do."""
        has_addresses = any(isinstance(array, numbers.Integral) for array in arrays)
        return {**options, **self._said} if self._said and has_addresses else options

    def find(
        self, bound: int, unknown: bool, rows: Any, out: Any, options: Options, least: Optional[int]
    ) -> Optional[Prepared]:
        """The struct of the latest arguments, held, with its pointers set; None if these look different, or have no room
        for `least` rows."""
        known = self._known
        if known is None or known.bound != bound or known.unknown is not unknown:
            return None
        prepared = known.prepared
        if (least is not None and not prepared.has_room(least)) or not prepared.busy.acquire(False):
            return None
        try:
            words = known.words
            words[known.rows_at], words[known.out_at] = known.rows(rows), known.out(out)
            if known.others or options is not self.options:
                self._set_others(known, options)
        except NO_FORM:
            prepared.busy.release()
            return None
        return prepared

    def _set_others(self, known: _Known, options: Options) -> None:
        parts, more = self._parts if options is self.options else parts_of(options)
        if parts != known.parts:
            raise NoForm
        for (same, words, field), array in zip(known.others, more):
            words[field] = same(array)

    def remember(
        self, bound: int, unknown: bool, rows: Any, out: Any, options: Options, prepared: Prepared
    ) -> None:
        """Keeps arguments that passed the checks, and their struct."""
        self._known = _Known(prepared, bound, unknown, (rows, out), self._names, options)

    def require(self, arrays: Arrays, options: Options) -> None:
        """Refuses arguments that do not match the plan's."""
        if self._said is None:
            raise errors.InvalidUsage(f"{self.name}: the plan was made without it")
        complete(self.name, options, _DEFAULTS[self.name])
        for name in options:
            _require_alike(name, options[name], self.options.get(name))
        for name, found in _described(zip(self._names, arrays), options):
            _require_array(name, found, self._expected.get(name, NOTHING))


def _take(
    call: str, given: Optional[Options], names: Sequence[str], tokens: int, check: Check
) -> Tuple[Arrays, Options, Optional[Options]]:
    """Arrays and keywords of a call for a plan, checked; and the keywords that follow from the arrays, for calls that
    pass addresses. Nothing if the plan is made without the call."""
    if given is None:
        return (None, None), {}, None
    if not isinstance(given, Mapping):
        raise TypeError(f"{call} is a {type(given).__name__}, expected a dictionary")
    try:
        for name in names:
            if name not in given:
                raise TypeError(f"{name} is left out")
        arrays = tuple(given[name] for name in names)
        options = {name: value for name, value in given.items() if name not in names}
        args, _ = check(tokens, arrays, complete(call, options, _DEFAULTS[call]))
        if "payloads" in options:
            options["payloads"] = tuple(options["payloads"])
    except (TypeError, ValueError) as error:
        raise type(error)(f"{call}: {error}") from None
    said = dict(row_type=ROW_TYPE_NAMES[args.rowType], hidden=args.hidden)
    return arrays, options, said if call == "combine" else dict(said, out_rows_max=args.outRowsMax)


def _described(arrays: Iterable[Tuple[str, Any]], options: Options) -> Iterator[Tuple[str, Array]]:
    """Name and description of each array. Those of payloads may have strides."""
    for name, array in arrays:
        yield name, describe(array, name)
    for name, array in named_arrays(options):
        yield name, describe(array, name, strided=name.startswith("payloads"))


def _require_alike(name: str, value: Any, planned: Any) -> None:
    """Requires that an option differs from the plan's in its arrays alone, or in the word for which a Ready waits."""
    if name in ARRAYS:
        return
    if name == "payloads":
        if len(value) != len(planned or ()):
            raise ValueError(f"payloads has {len(value)} of them, expected {len(planned or ())} as in the plan")
        for number, (one, other) in enumerate(zip(value, planned)):
            _require_alike(f"payloads[{number}]", one, other)
    elif isinstance(value, tuple) and type(value) is type(planned):
        for field, one, other in fields_beside_arrays(value, planned):
            if not (isinstance(value, Ready) and field == "value"):
                _require_alike(f"{name}.{field}", one, other)
    elif value.__class__ is not planned.__class__ or value != planned:
        raise ValueError(f"{name} is {_shown(value)}, expected {_shown(planned)} as in the plan")


def _require_array(name: str, found: Array, planned: Array) -> None:
    if found.given != planned.given:
        raise ValueError(f"{name} is {_kind(found)}, expected {_kind(planned)} as in the plan")
    if not (found.is_array and planned.is_array):
        return  # the caller promises that an address is that of such an array
    if found.shape != planned.shape:
        raise ValueError(f"{name} has shape {found.shape}, expected {planned.shape} as in the plan")
    if found.dtype != planned.dtype:
        raise TypeError(f"{name} holds {found.dtype}, expected {planned.dtype} as in the plan")


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, tuple) else repr(value)


def _kind(found: Array) -> str:
    if not found.given:
        return "None"
    return f"an array of shape {found.shape}" if found.is_array else "an address"
