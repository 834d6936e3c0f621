"""Calls that have been checked before. A handle keeps one argument struct for each form of a call. A later call of that
form replaces the pointers in it and checks nothing that the form decides. Decision 0097 says why and what it gains.

A form is everything that the checks read except addresses: shapes, dtypes and places of arrays, options, and the
handle's knowledge of its route. Arrays of other types than numpy's and torch's own, read-only ones and numpy's with
strides have no form, and are checked in every call."""

from __future__ import annotations

import _thread
import ctypes
from operator import itemgetter
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from . import _native
from .arguments import Arguments
from .checks import ROW_TYPES
from .combine_arguments import WIRES
from .options import ARRAYS
from .parts import Cast, Describe, Grads, Payload, Ready
from .values import ADDRESS_MAX

ROW_TYPE_NAMES = {number: name for name, number in ROW_TYPES.items()}
WIRE_NAMES = {number: name for name, number in WIRES.items()}
FORMS_MAX = 512  # of a handle; an engine has one for each number of tokens
Form = Tuple[Any, ...]
Found = TypeVar("Found")

_byte_of = ctypes.c_char.from_buffer
_address_of = ctypes.addressof


class NoForm(Exception):
    """The arguments have to be checked."""


# The exceptions that arguments without a known form cause. The checks then report errors in words.
NO_FORM = (NoForm, KeyError, TypeError, ValueError, RuntimeError, BufferError)


def _of_numpy(array: Any) -> Tuple[Any, int]:
    shape, dtype = array.shape, array.dtype
    if not array.size:
        raise NoForm
    # Fails for arrays that are read-only or not contiguous.
    return (shape, dtype), _address_of(_byte_of(array))


def _of_tensor(tensor: Any) -> Tuple[Any, int]:
    strides = tensor.is_contiguous() or tensor.stride()
    return (tensor.shape, tensor.dtype, tensor.device, strides), tensor.data_ptr()


def _of_address(address: int) -> Tuple[Any, int]:
    if not 0 < address <= ADDRESS_MAX:
        raise NoForm
    return int, address


def _of_others(_: Any) -> Tuple[Any, int]:
    raise NoForm


_Look = Callable[[Any], Tuple[Any, int]]
Same = Callable[[Any], int]
_LOOKS: Dict[type, _Look] = {int: _of_address, type(None): _of_others}
_BY_NAME: Dict[Tuple[str, str], _Look] = {
    ("numpy", "ndarray"): _of_numpy,
    ("torch", "Tensor"): _of_tensor,
    ("torch.nn.parameter", "Parameter"): _of_tensor,
}


def _look(array: Any) -> Tuple[Any, int]:
    """Form and address of an array of a type that has not been seen before."""
    kind = type(array)
    look = _LOOKS[kind] = _BY_NAME.get((kind.__module__, kind.__name__), _of_others)
    return look(array)


# ---- Whether an array has the form of another one, in half the time ----------------------------------------------------


def _same_numpy(array: Any) -> Same:
    kind, shape, dtype = type(array), array.shape, array.dtype

    def same(other: Any) -> int:
        if other.__class__ is not kind or other.shape != shape or other.dtype is not dtype:
            raise NoForm
        return _address_of(_byte_of(other))

    return same


def _same_tensor(tensor: Any) -> Same:
    kind, shape, dtype, device = type(tensor), tensor.shape, tensor.dtype, tensor.device
    strides = None if tensor.is_contiguous() else tensor.stride()

    def same(other: Any) -> int:
        if other.__class__ is not kind or other.shape != shape or other.dtype is not dtype or other.device != device:
            raise NoForm
        if (not other.is_contiguous()) if strides is None else other.stride() != strides:
            raise NoForm
        address: int = other.data_ptr()
        return address

    return same


def _same_address(_: int) -> Same:
    def same(other: Any) -> int:
        if other.__class__ is not int or not 0 < other <= ADDRESS_MAX:
            raise NoForm
        return int(other)

    return same


def _same_none(other: Any) -> int:
    if other is not None:
        raise NoForm
    return 0


_SAMES: Dict[_Look, Callable[[Any], Same]] = {
    _of_numpy: _same_numpy,
    _of_tensor: _same_tensor,
    _of_address: _same_address,
    _of_others: lambda _: _same_none,
}


def same_as(array: Any) -> Same:
    """A function that returns the address of an array of the same form, 0 for None, and raises one of NO_FORM for others.
    array: one that has a form, or None."""
    return _SAMES[_LOOKS[type(array)]](array)


def _field_of(name: str) -> str:
    """The C name of a keyword: outRows for out_rows."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class _Part(NamedTuple):
    """How to look through a class of parts.py.

    arrays  gets the fields that are arrays or addresses
    others  gets the other ones, and the types of the integers, since 1, 1.0 and True are equal
    fields  of the C struct, for `arrays`"""

    arrays: Callable[[Any], Tuple[Any, ...]]
    others: Callable[[Any], Any]
    fields: Tuple[str, ...]


_LAST = Describe._fields.index("ids")  # fields before it are arrays
_PARTS: Dict[type, _Part] = {
    Cast: _Part(itemgetter(1, 3, 4), itemgetter(0, 2, 5, 6), ("outScales", "inputScale", "globalScale")),
    Describe: _Part(
        itemgetter(slice(_LAST)),
        lambda part: (*part[_LAST:], *map(type, part[_LAST:])),
        tuple(map(_field_of, Describe._fields[:_LAST])),
    ),
    Payload: _Part(itemgetter(slice(2)), lambda part: (part[2], part[3], part[3].__class__), ("in", "out")),
    Ready: _Part(itemgetter(slice(1)), lambda part: (*part[1:], *map(type, part[1:])), ("words",)),
    Grads: _Part(tuple, type, ("weightGrads", "outWeightGrads")),
}


def parts_of(options: Mapping[str, Any]) -> Tuple[List[Any], Tuple[Any, ...]]:
    """The form of options without their arrays, and these arrays. Raises one of NO_FORM if an option has no form."""
    form: List[Any] = []
    found: Tuple[Any, ...] = ()
    parts = _PARTS
    for name, value in options.items():
        part = parts.get(value.__class__)
        if part is not None:
            others = part.others(value)
            hash(others)
            form += (name, others)
            found += part.arrays(value)
        elif name in ARRAYS:
            form += (name,)
            found += (value,)
        elif name == "payloads" and value.__class__ in (tuple, list):
            form += (name, len(value))
            for payload in value:
                part = parts[payload.__class__]
                others = part.others(payload)
                hash(others)
                form.append(others)
                found += part.arrays(payload)
        else:
            form += (name, value, value.__class__)  # since 1, 1.0 and True are equal
            hash(value)
    return form, found


def form_of(
    state: Tuple[Any, ...], arrays: Tuple[Any, ...], options: Mapping[str, Any]
) -> Tuple[Form, Sequence[int]]:
    """The form of a call, and the addresses of its arrays in their order: `arrays`, then those among the options and in
    their parts. state: the state of the handle that the checks read. The form is () if there is none."""
    try:
        form, found = parts_of(options)
        addresses: List[int] = []
        looks, nothing = _LOOKS, (None,)
        for array in (*arrays, *found):
            if array is None:
                form += nothing
            else:
                look, address = looks.get(array.__class__, _look)(array)
                form.append(look)
                addresses.append(address)
        return (state, *form), addresses
    except NO_FORM:
        return (), ()


def named_arrays(options: Mapping[str, Any]) -> Iterator[Tuple[str, Any]]:
    """Names and values of the arrays among the options and in their parts, in the order of parts_of()."""
    for name, value in options.items():
        if name in ARRAYS:
            yield name, value
        elif name == "payloads":
            for number, payload in enumerate(value):
                yield from _named_fields(f"{name}[{number}]", payload)
        elif value.__class__ in _PARTS:
            yield from _named_fields(name, value)


def _named_fields(name: str, value: Any) -> Iterator[Tuple[str, Any]]:
    arrays = _PARTS[value.__class__].arrays
    for field, array in zip(arrays(value._fields), arrays(value)):
        yield f"{name}.{field}", array


def fields_beside_arrays(value: Any, other: Any) -> Iterator[Tuple[str, Any, Any]]:
    """Names and values of the fields of two equal parts that are no arrays."""
    arrays = _PARTS[value.__class__].arrays(value._fields)
    for name, one, another in zip(value._fields, value, other):
        if name not in arrays:
            yield name, one, another


def pointers(
    args: Any, names: Sequence[Optional[str]], arrays: Tuple[Any, ...], options: Mapping[str, Any]
) -> Iterator[Optional[Tuple[Any, str]]]:
    """Struct and field for each address of a form, in the form's order; None for an address that is not an argument."""
    for name, array in zip(names, arrays):
        if array is not None:
            yield (args, _field_of(name)) if name is not None else None
    for name, value in options.items():
        if value is None:
            continue
        if name in ARRAYS:
            yield args, _field_of(name)
        elif value.__class__ in _PARTS:
            yield from _pointers_of(getattr(args, name).contents, value)
        elif name == "payloads":
            for number, payload in enumerate(value):
                yield from _pointers_of(args.payloads[number], payload)


def _pointers_of(struct: Any, value: Any) -> Iterator[Tuple[Any, str]]:
    part = _PARTS[value.__class__]
    for field, array in zip(part.fields, part.arrays(value)):
        if array is not None:
            yield struct, field


def _words_of(struct: Any) -> Any:
    """The struct's memory in words of a pointer's size."""
    return (ctypes.c_uint64 * (ctypes.sizeof(struct) // 8)).from_buffer(struct)


class Prepared:
    """An argument struct whose pointers can be replaced, those in the structs that it points to as well. It owns them.

    reference  what the library gets
    places     (words of a struct, index of the pointer in them, which of the addresses it is)
    tokens     of this rank
    capacity   outRowsMax of a dispatch; None of a combine
    room       the fewest rows among its arrays whose rows the route decides; None: there are none
    rows       row type and hidden; of a combine also the wire: SummedRows
    reusable   later calls of the same form may use it
    busy       held by the call that uses the struct: a call of another thread makes one of its own"""

    __slots__ = ("args", "reference", "places", "tokens", "capacity", "room", "send_only", "rows", "reusable", "busy")

    def __init__(self, args: Any, tokens: int, room: Optional[int]):
        self.args, self.tokens, self.room = args, tokens, room
        self.rows: Tuple[Any, ...] = ROW_TYPE_NAMES[args.rowType], args.hidden
        if isinstance(args, _native.moeCombineArgs_t):
            self.rows += (WIRE_NAMES[args.wire],)
        self.reference = ctypes.byref(args)
        self.capacity: Optional[int] = getattr(args, "outRowsMax", None)
        self.send_only = bool(args.flags & _native.moeSendOnly)
        self.places: List[Tuple[Any, int, int]] = []
        self.reusable = False
        self.busy = _thread.allocate_lock()
        self.busy.acquire()

    def learn(self, pointers: Iterator[Optional[Tuple[Any, str]]], addresses: Sequence[int]) -> bool:
        """Finds the pointer of each address in the structs. False if a pointer differs from its address, so that the
        structs cannot be used again."""
        views: Dict[int, Any] = {}  # by the structs' addresses
        for number, pointer in enumerate(pointers):
            if pointer is None:
                continue
            struct, name = pointer
            at = _address_of(struct)
            words = views[at] = views.get(at) or _words_of(struct)
            field = getattr(type(struct), name).offset // 8
            if words[field] != addresses[number]:
                return False
            self.places.append((words, field, number))
        return True

    def words(self, names: Sequence[str]) -> Tuple[Any, List[int]]:
        """The struct's words, and the indexes of the pointers with these names."""
        return _words_of(self.args), [getattr(type(self.args), _field_of(name)).offset // 8 for name in names]

    def has_room(self, least: int) -> bool:
        """Whether all arrays have room for this many rows."""
        return (self.room is None or self.room >= least) and (self.capacity is None or self.capacity >= least)

    def use(self, addresses: Sequence[int], least: Optional[int]) -> bool:
        """Holds the struct for a call, and sets its pointers. False if the arguments have to be checked. least: rows for
        which arrays must have room; None: the form decides that too."""
        if (least is not None and not self.has_room(least)) or not self.busy.acquire(False):
            return False
        for words, field, number in self.places:
            words[field] = addresses[number]
        return True


class Forms(Dict[Form, Found]):
    """A value, such as a struct, for each of the latest forms, at most FORMS_MAX."""

    def keep(self, form: Form, found: Found) -> None:
        if len(self) >= FORMS_MAX:
            self.clear()
        self[form] = found


class PreparedCalls:
    """The prepared calls of one handle. `routes` has the tokens of each route."""

    def __init__(self) -> None:
        self._by_form: Forms[Prepared] = Forms()
        self.routes: Forms[int] = Forms()

    def find(self, form: Form, addresses: Sequence[int], least: Optional[int]) -> Optional[Prepared]:
        """The struct for a call of this form, with its pointers set, and held; None if the arguments have to be
        checked. least: rows for which arrays must have room; None: the form decides that too."""
        prepared = self._by_form.get(form)
        return prepared if prepared is not None and prepared.use(addresses, least) else None

    def make(
        self,
        form: Form,
        addresses: Sequence[int],
        args: Any,
        arguments: Arguments,
        names: Sequence[Optional[str]],
        arrays: Tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> Prepared:
        """Checked arguments, held, for later calls of `form` to find. names: of `arrays` in the struct."""
        prepared = Prepared(args, arguments.tokens, arguments.room)
        if form and arguments.reusable:
            prepared.reusable = prepared.learn(pointers(args, names, arrays, options), addresses)
            if prepared.reusable:
                self._by_form.keep(form, prepared)
        return prepared
