"""Calls that have been checked before. A handle keeps the argument struct of each call of another form; a later call of
that form replaces the pointers in it and checks nothing that the form decides. Decision 0097 says why and what it gains.

A form is all that checks read but addresses: shapes, dtypes and places of arrays, options, and what the handle knows of
its route. Arrays of other types than numpy's and torch's own, read-only ones and several payloads have no form, and are
checked in every call."""

from __future__ import annotations

import _thread
import ctypes
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

from . import _native
from .arguments import Arguments
from .checks import ROW_TYPES
from .options import ARRAYS
from .values import ADDRESS_MAX

ROW_TYPE_NAMES = {number: name for name, number in ROW_TYPES.items()}
FORMS_MAX = 512  # of a handle; an engine has one for each number of tokens
Form = Tuple[Any, ...]
Found = TypeVar("Found")

_byte_of = ctypes.c_char.from_buffer
_address_of = ctypes.addressof


class NoForm(Exception):
    """The arguments have to be checked."""


def _of_numpy(array: Any) -> Tuple[Any, int]:
    shape, dtype = array.shape, array.dtype
    if not array.size:
        raise NoForm
    # Fails for arrays that are read-only or not contiguous.
    return (shape, dtype), _address_of(_byte_of(array))


def _of_tensor(tensor: Any) -> Tuple[Any, int]:
    return (tensor.shape, tensor.dtype, tensor.device, tensor.is_contiguous()), tensor.data_ptr()


def _of_address(address: int) -> Tuple[Any, int]:
    if not 0 < address <= ADDRESS_MAX:
        raise NoForm
    return int, address


def _of_others(_: Any) -> Tuple[Any, int]:
    raise NoForm


_LOOKS: Dict[type, Callable[[Any], Tuple[Any, int]]] = {int: _of_address}
_BY_NAME = {
    ("numpy", "ndarray"): _of_numpy,
    ("torch", "Tensor"): _of_tensor,
    ("torch.nn.parameter", "Parameter"): _of_tensor,
}


def _look(array: Any) -> Tuple[Any, int]:
    """Form and address of an array of a type that has not been seen before."""
    kind = type(array)
    look = _LOOKS[kind] = _BY_NAME.get((kind.__module__, kind.__name__), _of_others)
    return look(array)


def form_of(
    state: Tuple[Any, ...], arrays: Tuple[Any, ...], options: Mapping[str, Any]
) -> Tuple[Form, Sequence[int]]:
    """The form of a call, and the addresses of its arrays in their order: `arrays`, then those among the options.
    state: what the checks read of the handle. The form is () if there is none."""
    form: List[Any] = [state]
    addresses: List[int] = []
    looks = _LOOKS
    try:
        for array in arrays:
            if array is None:
                form.append(None)
                continue
            found, address = looks.get(array.__class__, _look)(array)
            form.append(found)
            addresses.append(address)
        for name, value in options.items():
            form.append(name)
            if value is not None and name in ARRAYS:
                found, address = looks.get(value.__class__, _look)(value)
                form.append(found)
                addresses.append(address)
            elif name == "payloads" and value:
                return (), ()
            else:
                form += (value, value.__class__)  # since 1, 1.0 and True are equal
                hash(value)
        return tuple(form), addresses
    except (NoForm, TypeError, ValueError, RuntimeError, BufferError):  # the checks say in words what is wrong
        return (), ()


class Prepared:
    """An argument struct whose pointers can be replaced.

    reference  what the library gets
    tokens     of this rank
    capacity   outRowsMax of a dispatch; None of a combine
    room       the fewest rows among its arrays whose rows the route decides; None: there are none
    rows       row type and hidden
    busy       held by the call that uses the struct: a call of another thread makes one of its own"""

    __slots__ = ("args", "reference", "places", "words", "tokens", "capacity", "room", "send_only", "rows", "busy")

    def __init__(self, args: Any, tokens: int, room: Optional[int]):
        self.args, self.tokens, self.room = args, tokens, room
        self.rows: Tuple[str, int] = ROW_TYPE_NAMES[args.rowType], args.hidden
        self.reference = ctypes.byref(args)
        self.capacity: Optional[int] = getattr(args, "outRowsMax", None)
        self.send_only = bool(args.flags & _native.moeSendOnly)
        self.words = (ctypes.c_uint64 * (ctypes.sizeof(args) // 8)).from_buffer(args)
        self.places: List[Tuple[int, int]] = []
        self.busy = _thread.allocate_lock()
        self.busy.acquire()

    def learn(self, names: Sequence[Optional[str]], addresses: Sequence[int]) -> bool:
        """Learns which pointer each address is; None names one that the struct does not have. False if a pointer is
        another, so that the struct cannot be used again."""
        for number, name in enumerate(names):
            if name is None:
                continue
            field = getattr(type(self.args), _field_of(name)).offset // 8
            if self.words[field] != addresses[number]:
                return False
            self.places.append((field, number))
        return True

    def has_room(self, least: int) -> bool:
        """Whether all arrays have room for this many rows."""
        return (self.room is None or self.room >= least) and (self.capacity is None or self.capacity >= least)


def _field_of(name: str) -> str:
    """out_rows is outRows."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class Forms(Dict[Form, Found]):
    """What follows from a form, for the latest FORMS_MAX or fewer."""

    def keep(self, form: Form, found: Found) -> None:
        if len(self) >= FORMS_MAX:
            self.clear()
        self[form] = found


class PreparedCalls:
    """Of one handle. `routes` has the tokens of each route."""

    def __init__(self) -> None:
        self._by_form: Forms[Prepared] = Forms()
        self.routes: Forms[int] = Forms()

    def find(self, form: Form, addresses: Sequence[int], least: Optional[int]) -> Optional[Prepared]:
        """The struct for a call of this form, with its pointers set, and held; None if the arguments have to be
        checked. least: rows for which arrays must have room; None: the form decides that too."""
        prepared = self._by_form.get(form)
        if prepared is None or (least is not None and not prepared.has_room(least)) or not prepared.busy.acquire(False):
            return None
        words = prepared.words
        for field, number in prepared.places:
            words[field] = addresses[number]
        return prepared

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
            given: List[Optional[str]] = [name for name, array in zip(names, arrays) if array is not None]
            given += [name for name, value in options.items() if value is not None and name in ARRAYS]
            if prepared.learn(given, addresses):
                self._by_form.keep(form, prepared)
        return prepared
