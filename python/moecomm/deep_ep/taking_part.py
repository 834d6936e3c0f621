"""A rank that refuses a call of a Buffer takes part in it all the same, so that no other rank waits for it: see
Handle.take_part. If its arguments do not show which handle the others use, it takes that of the latest such call, since
an engine's calls have few shapes. After the refusal of a Buffer's first call it takes no part."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, TypeVar

from .. import errors
from ..handle_refusals import took_part
from ..ring import HandleRing
from . import columns
from .routes import groups_of

Method = TypeVar("Method", bound=Callable[..., Any])
ROUTED = ("route", "dispatch")
AT_ONCE = ("route_dispatch",)
COUNTED = ("route_dispatch", "counts")  # for which the host waits, and after which all ranks may grow


def takes_part(
    calls: Callable[[Dict[str, Any]], Sequence[str]], handle_at: Optional[int] = None
) -> Callable[[Method], Method]:
    """Decorates a method of a Buffer, as `collective` does. One function does both, since each takes time in every call.

    calls      of the arguments: the library calls that the method makes, in their order
    handle_at  where a dispatch returns its handle"""

    def decorate(method: Method) -> Method:
        signature, name = inspect.signature(method), method.__name__

        @functools.wraps(method)
        def wrapped(self: Any, *arguments: Any, **keywords: Any) -> Any:
            self.routes.require_open()
            rings = self.__dict__.setdefault("_latest_rings", {})
            ring = rings.get(name)
            before = ring.given_out if ring is not None else 0
            try:
                result = method(self, *arguments, **keywords)
            except Exception as error:  # noqa: B902
                if not took_part(error):
                    given = signature.bind_partial(self, *arguments, **keywords).arguments
                    _take_part(self, calls(given), error, given, ring, before)
                if isinstance(error, errors.MoeError):
                    self.routes.explain(error, groups_of((*arguments, *keywords.values())))
                raise
            if handle_at is not None and result[handle_at] is not None:
                rings[name] = result[handle_at].route.ring
            return result

        return wrapped  # type: ignore[return-value]

    return decorate


def _take_part(
    buffer: Any,
    calls: Sequence[str],
    error: Exception,
    given: Dict[str, Any],
    ring: Optional[HandleRing],
    before: int,
) -> None:
    try:
        if hasattr(buffer, "tell_refusal"):
            buffer.tell_refusal(given, error)
        route = getattr(given.get("handle"), "route", None)
        if route is not None:
            native, name = route.handle(), "combine" if calls[0] == "combine" else "dispatch"
            route.note(name)  # the call counts here as on ranks that have not refused it
            stream = buffer.lane.start(route.ring.comm, None)
            columns.take_part(native, route.group.sizes, name, error, stream, given)
            return
        if ring is not None:
            native, made = _routing(ring, before)
            comm = ring.comm
        else:
            return
        if made < len(calls) and calls[made] != "counts":
            stream = buffer.lane.start(comm, None)
            native.take_part(calls[made], error, stream, {**given, "rows": given.get("x")})
            if calls is COUNTED and took_part(error):
                buffer.grow(native, stream, error, -1, native.tokens_max)  # the others may ask whether it was too small
    except Exception:  # noqa: B902  what is refused, or the Buffer, is too wrong for that
        return


def _routing(ring: HandleRing, before: int) -> Tuple[Any, int]:
    """The handle of this call's route, and the calls that it has made."""
    if ring.given_out == before:
        return ring.next()[1], 0
    return ring.latest()
