"""Handles: a route, and the dispatches and combines that use it."""

from __future__ import annotations

import ctypes
import warnings
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Tuple, Type

from . import _library, _native, errors
from .arguments import Arguments
from .arrays import stream_address
from .checks import require_shape, take
from .combine_arguments import CombineArguments
from .dispatch_arguments import DispatchArguments, cast_type
from .handle_queries import HANDLE_MODES, HandleQueries
from .handle_refusals import ON_FAULT, HandleRefusals
from .layouts import LAYOUTS, Layout
from .membership import Membership
from .options import COMBINE_DEFAULTS, DISPATCH_DEFAULTS, CombineOptions, DispatchOptions, complete
from .outputs import LEFT_OUT, require_template, rows_like
from .placement import placement_of
from .plan import Plan
from .prepared import Prepared, PreparedCalls, form_of
from .values import choice, integer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .names import Duplicates, IndexType, LayoutName, Mode, OnFault
    from .options import CombinePlan, DispatchPlan

DUPLICATES = {"fail": _native.moeDuplicatesFail, "merge": _native.moeDuplicatesMerge}
INDEX_TYPES = {"int32": _native.moeIndexInt32, "int64": _native.moeIndexInt64}
ARRIVAL_SHIFT = _native.MOE_ARRIVAL_SHIFT


class Handle(HandleQueries, HandleRefusals):
    """A route of one shape, and the dispatches and combines that use it. Communicator.handle() makes it. Use it as a
    context manager, or call destroy().

    comm              the Communicator
    experts           of all ranks together
    topk              entries of a token in topk_idx
    layout            "flat", "expert-major", "expert-major-padded" or "rank-major"
    mode              "auto", "ht" or "ll"
    tokens_max        the most tokens of a rank; 0: the communicator's
    expert_alignment  each expert's group of expert-major rows starts at a multiple of it
    index_type        "int32" or "int64", the dtype of expert ids
    arrivals          expert-major layouts: makes words that kernels beside dispatch read, see arrivals()
    duplicates        "merge" lets a token name an expert again: its weights add up. With "fail" that is a fault, see
                      status()
    statistics        adds up rows and waits, see statistics()
    combine_weights   lets combine() take topk_weights
    rows_budget       the most tokens that arrive at a rank; 0: all do. The last ones are left out, and
                      counts().rows_wanted tells how many there were
    expert_counts     tells the rows of all experts on every rank: counts().rows_of_all_experts
    local_only        takes this rank's experts alone; nranks and experts in shapes are then 1 and local_experts
    on_fault          with the host backend: "raise": a call raises the fault that its work has met, on every rank that
                      hears of it, see status(); "status": only status() reports it. With the cuda backend the work
                      comes later, and only status() reports faults

    A rank that refuses a route, dispatch or combine raises an error that names the argument. It takes part in the call
    all the same, so that no other rank waits for it. The step is then over on all ranks, and delivers nothing. On the
    other ranks, status() or the exception names this rank. The next step begins with a route.

    Arrays are device memory with the cuda backend and host memory with the host backend: numpy arrays, tensors, objects
    with __cuda_array_interface__ or __dlpack__, or addresses. Device, dtype, shape, contiguity and, for outputs,
    writability are checked. ValueError and TypeError say what was found and what was expected. Addresses cannot be
    checked, so a caller who passes one is responsible for the memory behind it. "out rows" below are the rows of the
    handle's layout, counts().layout_rows. Arrays for them may have more. In grouped layouts they may be two axes:
    rank-major [nranks, tokens_max], expert-major-padded [local experts, nranks * tokens_max].

    With the cuda backend the calls only queue work on `stream` (an int, a torch.cuda.Stream, or None for the default
    stream). Keep the arrays alive until the work has run. Arrays of a send-only operation are kept until complete()."""

    def __init__(
        self,
        comm: Membership,
        experts: int,
        topk: int,
        layout: LayoutName = "flat",
        mode: Mode = "auto",
        tokens_max: int = 0,
        expert_alignment: int = 0,
        index_type: IndexType = "int32",
        arrivals: bool = False,
        duplicates: Duplicates = "fail",
        statistics: bool = False,
        combine_weights: bool = False,
        rows_budget: int = 0,
        expert_counts: bool = False,
        local_only: bool = False,
        on_fault: OnFault = "raise",
    ):
        self._comm, self._native, self._library = comm, comm.native, _library.library()
        self._prepared = PreparedCalls()
        self._pointer = None
        self.topk = integer(topk, "topk")
        self.layout = layout
        self._index_type = index_type
        self._raises = choice(ON_FAULT, on_fault, "on_fault") != 0
        config = _native.moeHandleConfig_t(
            experts=integer(experts, "experts"),
            topk=self.topk,
            layout=choice(LAYOUTS, layout, "layout"),
            mode=choice(HANDLE_MODES, mode, "mode"),
            tokensMax=integer(tokens_max, "tokens_max"),
            expertAlignment=integer(expert_alignment, "expert_alignment"),
            indexType=choice(INDEX_TYPES, index_type, "index_type"),
            arrivals=1 if arrivals else 0,
            duplicates=choice(DUPLICATES, duplicates, "duplicates"),
            statistics=1 if statistics else 0,
            combineWeights=1 if combine_weights else 0,
            rowsBudget=integer(rows_budget, "rows_budget"),
            expertCounts=1 if expert_counts else 0,
            localOnly=1 if local_only else 0,
        )
        pointer = _native.moeHandle_t()
        with comm.native as owner:
            self._check(_library.library().moeHandleCreate(ctypes.byref(pointer), owner, ctypes.byref(config)), owner)
            self._pointer = pointer.value
        self._tokens: Optional[int] = None  # of the last route
        self._rows: Optional[Tuple[int, int]] = None  # arrived tokens, out rows of the last route, once asked for
        self._capacity: Optional[int] = None  # of the last dispatch along this route
        self._kept: Tuple[Any, ...] = ()  # arrays of the operation that awaits complete()
        self._completes_dispatch = False  # that operation is a dispatch
        self.calls = self.routes = 0  # collective calls in which this rank took part, and those of them that routed
        self._summed: Optional[Tuple[str, int, str]] = None  # of the latest combine: SummedRows
        self._sent: Optional[Tuple[str, int]] = None
        info, limits = comm.info, comm.limits
        self._rank, self._alone = info.rank, local_only or info.nranks == 1
        self._low_latency = self.mode == "ll"
        on_host = comm.place.device == "cpu"
        self._fault = ctypes.c_uint32.from_address(self.device_counts().fault) if on_host else None
        limit = limits.ll_tokens_max if self._low_latency else limits.tokens_max
        experts_here = config.experts // info.nranks + (1 if info.rank < config.experts % info.nranks else 0)
        self._experts = experts_here if local_only else config.experts
        self._tokens_max = config.tokensMax or limit
        nranks, alignment = 1 if local_only else info.nranks, config.expertAlignment or 1
        self._layout = Layout(layout, nranks, self._tokens_max, experts_here, self.topk, alignment)
        self._next_layout = self._layout  # for the next route; `_layout` is that of the last one

    @property
    def pointer(self) -> Optional[int]:
        """The moeHandle_t, for callers of the C interface; None once it or its communicator is destroyed."""
        return self._pointer if self._comm.native.pointer is not None else None

    @property
    def tokens_max(self) -> int:
        """The most tokens of a rank. set_tokens_bound() does not change it."""
        return self._tokens_max

    def _check(self, result: int, owner: int) -> None:
        errors.check(self._library, result, owner)

    def _call(self, function: str, *arguments: Any) -> None:
        pointer = self._pointer or self._require_alive()
        self._native.call(getattr(self._library, function), pointer, *arguments)

    def _run(self, function: Any, *arguments: Any) -> None:
        self._native.call(function, self._pointer or self._require_alive(), *arguments)

    def _require_alive(self) -> int:
        if self._pointer is None:
            self._native.require_alive()
            raise errors.InvalidUsage("the handle has been destroyed")
        return self._pointer

    def __repr__(self) -> str:
        kept = self.__dict__  # lacks what making the handle would have set, if that failed
        if "_next_layout" not in kept:
            return f"<{type(self).__name__} that has not been made>"
        mode = "ll" if self._low_latency else "ht"
        sizes = f"experts {self._experts}, topk {self.topk}, tokens_max {self._tokens_max}"
        gone = ", destroyed" if self.pointer is None else ""
        return f"<{type(self).__name__} layout {self.layout}, mode {mode}, {sizes}{gone}>"

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: Any) -> None:
        self.destroy()

    def __del__(self) -> None:
        # The handle ends with its communicator. Ranks drop objects at different times, but must destroy the same
        # handles in the same order.
        comm = self.__dict__.get("_comm")
        if comm is not None and self.__dict__.get("_pointer") is not None and comm.native.pointer is not None:
            warnings.warn(f"{self!r} was dropped without destroy()", ResourceWarning, source=self)

    def destroy(self) -> None:
        """Frees the handle. All work that uses it must have run. Idempotent. A handle that is only dropped lives
        until the communicator is destroyed."""
        pointer, self._pointer, self._kept = self._pointer, None, ()
        if pointer is not None and self._comm.native.pointer is not None:
            with self._comm.native as owner:
                self._check(_library.library().moeHandleDestroy(pointer), owner)

    def share_calls(self, other: Handle) -> None:
        """Shares checked forms of calls with another handle, so that each form of arguments is checked once for both.

        other  a handle of the same communicator, made with the same settings"""
        self._prepared = other._prepared

    # ---- Routes ------------------------------------------------------------------------------------------------------

    def route(self, topk_idx: Any, topk_weights: Any = None, tokens: Optional[int] = None, stream: Any = None) -> None:
        """Decides which rank gets which token. Collective. Any number of dispatches and combines may then use the route.

        topk_idx      [tokens, topk] global expert of the handle's index type, -1 = unused; None without tokens
        topk_weights  [tokens, topk] float32, or None for 1.0 everywhere
        tokens        of this rank; needed where topk_idx is an address or None
        stream        as in the class

        Both arrays are read by this call only. Raises ValueError, TypeError, InvalidArgument, or InvalidUsage while an
        operation of this handle awaits complete()."""
        try:
            taken = self._find_route(topk_idx, topk_weights, tokens)
            self._run(self._library.moeRoute, *taken, stream_address(stream))
        except Exception as error:  # noqa: B902
            self.take_part("route", error, stream)
            raise
        self._note_route(taken[2])
        self._raise_fault()

    def _find_route(self, topk_idx: Any, topk_weights: Any, tokens: Optional[int]) -> Tuple[int, int, int]:
        """Addresses of both arrays, and the tokens."""
        form, addresses = form_of((tokens,), (topk_idx, topk_weights), {})
        found = self._prepared.routes.get(form)
        if found is None or topk_idx is None:
            taken = self._take_route(topk_idx, topk_weights, tokens)
            if form:
                self._prepared.routes.keep(form, taken[2])
            return taken
        return addresses[0], addresses[1] if topk_weights is not None else 0, found

    def _take_route(self, topk_idx: Any, topk_weights: Any, tokens: Optional[int]) -> Tuple[int, int, int]:
        """The same, checked."""
        idx = take(topk_idx, "topk_idx", self._comm.place, (self._index_type,))
        weights = take(topk_weights, "topk_weights", self._comm.place, ("float32",))
        if tokens is None:
            if not idx.is_array:
                raise ValueError("topk_idx is an address or None, where tokens is needed")
            tokens = idx.shape[0] if idx.shape else 0
        tokens = integer(tokens, "tokens")
        require_shape(idx, "topk_idx", (tokens, self.topk), "[tokens, topk]")
        require_shape(weights, "topk_weights", (tokens, self.topk), "[tokens, topk]")
        return idx.address, weights.address, tokens

    def set_tokens_bound(self, tokens_bound: int) -> None:
        """Sets how many tokens a rank has at most in later routes, alike on all ranks; 0: tokens_max. Rank-major out rows
        are then [nranks, tokens_bound], those of expert-major-padded [local experts, nranks * tokens_bound], and
        out_source_index is rank * tokens_bound + token. Until the next route, that of the last one counts."""
        self._call("moeHandleSetTokensBound", integer(tokens_bound, "tokens_bound"))
        now = self._layout
        self._next_layout = Layout(
            now.name, now.nranks, tokens_bound or self._tokens_max, now.local_experts, self.topk, now.alignment
        )

    def set_placement(
        self,
        logical: Optional[Sequence[int]],
        ranks: Optional[Sequence[int]] = None,
        local_experts: Optional[Sequence[int]] = None,
        stream: Any = None,
    ) -> None:
        """Where the experts of a model are, for later routes, alike on all ranks: topk_idx then names logical experts,
        and a route takes one physical expert, a copy, of each. All else names physical ones. Sequences of ints on the
        host, such as numpy arrays; read by this call only.

        logical        [physical experts] the logical expert of each: every number from 0 to the largest. None: no
                       placement
        ranks          [physical experts] its rank; None: physical experts are in the order of the handle's
        local_experts  [physical experts] its number there; with ranks
        stream         orders the change among routes; not while it is captured"""
        placement = placement_of(logical, ranks, local_experts)
        address = None if placement is None else ctypes.byref(placement)
        self._call("moeHandleSetPlacement", address, stream_address(stream))

    # ---- Dispatch and combine ----------------------------------------------------------------------------------------

    def _known_rows(self) -> Optional[Tuple[int, int]]:
        """Arrived tokens and out rows of the last route; None if that would have to wait."""
        if self._rows is None and self._comm.place.device == "cpu":
            self._native_counts()
        return self._rows

    def _count_rows(self) -> Tuple[int, int]:
        """Arrived tokens and out rows of the last route. Waits for it."""
        counts = self._native_counts()
        return counts.rows, counts.layoutRows

    def _require_route(self, call: str) -> int:
        """The tokens of the last route."""
        self._comm.native.require_alive()
        self._require_alive()
        if self._tokens is None:
            raise errors.InvalidUsage(f"{call}: route() has not been called on this handle")
        return self._tokens

    def _arguments(self, kind: Type[Arguments], call: str) -> Any:
        return kind(self._comm.place, self._layout, self._require_route(call), self._known_rows)

    def _make_dispatch(self, arguments: DispatchArguments, rows: Any, out_rows: Any, options: Dict[str, Any]) -> Any:
        """moeDispatchArgs_t of dispatch()'s options, with a default for each."""
        stays_in_view = self.layout == "rank-major" and self._low_latency
        return arguments.make(rows, out_rows, index_type=self._index_type, stays_in_view=stays_in_view, **options)

    def _rows_due(self) -> Optional[int]:
        """The rows that arrays of this route must have; None if the layout decides them or the host does not know."""
        if self._layout.rows is not None or self._tokens is None:
            return None
        known = self._known_rows()
        return known[1] if known is not None else None

    def dispatch(
        self, rows: Any, out_rows: Any = LEFT_OUT, *, stream: Any = None, **options: Unpack[DispatchOptions]
    ) -> Any:
        """Sends each token to the ranks of its experts, once per rank. Collective. Returns None, or out_rows if it was left
        out.

        rows      [tokens, hidden] of any dtype. bfloat16, float16 and float32 are typed; elements of all others travel
                  bit for bit. None or without rows if this rank routed 0 tokens
        out_rows  [out rows, hidden] of the same dtype, in the handle's layout. Low-latency rank-major handles: None, with
                  out_rows_max 0, leaves the rows in view().rows. If left out, it is made like `rows`, a numpy array or
                  a torch tensor, with the rows of the layout or with as many as came. In the latter case the call waits
                  as counts() does, so it cannot be captured. With a cast it takes the codes, and cast.out_scales must
                  be given
        row_type  "bfloat16", "float16", "float32" or "bytes"; taken from the dtype of rows if not given. If given, the
                  arrays may also hold integers of that size, or bytes
        hidden    elements of a row, bytes if its type is "bytes"; needed where rows and out_rows are addresses or None
        out_rows_max  rows that out_rows can hold; needed where out_rows is an address or None
        cast          a Cast: rows are cast on their way; None: they travel as they are
        describe      a Describe: arrays for what the dispatch knows of the rows that arrive
        payloads      up to four Payload beside each row, together, rounded up to 16 bytes, at most side_bytes_max
        pad_indices   in rows that nothing arrived for: out_topk_idx and out_row_experts become invalid_id,
                      out_topk_weights 0, out_source_index -1
        pad_rows      those rows of out_rows, of scales and of payloads become zero. Flat, expert-major: up to the last
                      row for which all outputs have room
        send_only     starts the dispatch; complete() finishes it
        sms           GPU multiprocessors of this call; 0: the communicator's setting"""
        made = None
        try:
            if out_rows is LEFT_OUT:
                out_rows = made = self._make_rows(rows, options)
            prepared = self._find_dispatch((rows, out_rows), options)
            pointer, queue = self._pointer or self._require_alive(), stream_address(stream)
            self._native.call(self._library.moeDispatch, pointer, prepared.reference, queue)
        except Exception as error:  # noqa: B902
            self.take_part("dispatch", error, stream)
            raise
        self._note_dispatch(prepared, (rows, out_rows), options)
        return made

    def _make_rows(self, rows: Any, options: Mapping[str, Any]) -> Any:
        """Makes out_rows for a dispatch whose caller has left it out."""
        given = complete("dispatch", options, DISPATCH_DEFAULTS)
        self._require_route("dispatch")
        require_template(rows)
        if given["out_rows_max"] is not None:
            raise TypeError("out_rows_max is given, but out_rows is left out, whose rows follow from the route")
        cast, codes = given["cast"], cast_type(given["cast"])
        if cast is not None and cast.out_scales is None:
            raise TypeError(
                f"out_rows is left out and cast.type is {codes!r}, but cast.out_scales is None: expected an array for "
                "scales"
            )
        count = self._layout.rows
        if count is None:
            count = (self._rows or self._count_rows())[1]
        return rows_like(rows, count, codes)

    def _find_dispatch(self, arrays: Tuple[Any, ...], options: Mapping[str, Any]) -> Prepared:
        least = self._rows_due()
        form, addresses = form_of(("dispatch", self._layout.tokens_max, self._tokens, least is None), arrays, options)
        found = self._prepared.find(form, addresses, least)
        if found is not None:
            return found
        given = complete("dispatch", options, DISPATCH_DEFAULTS)
        arguments = self._arguments(DispatchArguments, "dispatch")
        args = self._make_dispatch(arguments, arrays[0], arrays[1], given)
        self._require_room(args, self._layout, self._known_rows())
        return self._prepared.make(form, addresses, args, arguments, ("rows", "out_rows"), arrays, options)

    def route_dispatch(
        self,
        topk_idx: Any,
        topk_weights: Any,
        rows: Any,
        out_rows: Any,
        *,
        tokens: Optional[int] = None,
        stream: Any = None,
        **options: Unpack[DispatchOptions],
    ) -> None:
        """route() and dispatch() in one call, for layers whose expert ids change in every step. Collective: all ranks
        make this call, or all make the two. A call that is refused leaves the earlier route as it was, if no other rank
        takes part.

        topk_idx, topk_weights, tokens  as for route(); the arrays overlap no output
        rows, out_rows                  as for dispatch()
        options                         the other keywords of dispatch()"""
        arrays = (topk_idx, topk_weights, rows, out_rows)
        try:
            prepared, ids, weights = self._find_route_dispatch(arrays, tokens, options)
            pointer, queue = self._pointer or self._require_alive(), stream_address(stream)
            function = self._library.moeRouteDispatch
            self._native.call(function, pointer, ids, weights, prepared.tokens, prepared.reference, queue)
        except Exception as error:  # noqa: B902
            self.take_part("route_dispatch", error, stream)
            raise
        self._note_route(prepared.tokens)
        self._note_dispatch(prepared, arrays, options)

    def _find_route_dispatch(
        self, arrays: Tuple[Any, ...], tokens: Optional[int], options: Mapping[str, Any]
    ) -> Tuple[Prepared, int, int]:
        """The call, and the addresses of the route's arrays."""
        topk_idx, topk_weights, rows, out_rows = arrays
        form, addresses = form_of(("route", self._next_layout.tokens_max, tokens), arrays, options)
        found = self._prepared.find(form, addresses, None)
        if found is not None:
            at = 0 if topk_idx is None else 1
            return found, addresses[0] if at else 0, addresses[at] if topk_weights is not None else 0
        given = complete("route_dispatch", options, DISPATCH_DEFAULTS)
        self._comm.native.require_alive()
        self._require_alive()
        ids, weights, tokens = self._take_route(topk_idx, topk_weights, tokens)
        args, arguments = self._check_dispatch(tokens, (rows, out_rows), given)
        names = (None, None, "rows", "out_rows")
        return self._prepared.make(form, addresses, args, arguments, names, arrays, options), ids, weights

    def _check_dispatch(self, tokens: int, arrays: Tuple[Any, ...], given: Dict[str, Any]) -> Tuple[Any, Arguments]:
        """moeDispatchArgs_t of a dispatch along a route that is yet to come."""
        arguments = DispatchArguments(self._comm.place, self._next_layout, tokens, lambda: None)
        args = self._make_dispatch(arguments, arrays[0], arrays[1], given)
        self._require_room(args, self._next_layout, None)
        return args, arguments

    def _require_room(self, args: Any, layout: Layout, known: Optional[Tuple[int, int]]) -> None:
        """Refuses an output that is known to be too small, if the library would report it on no other rank. So all
        ranks raise it."""
        least = layout.rows if layout.rows is not None else known[1] if known else 0
        if args.outRowsMax >= least or not self._low_latency or not self._raises or self._fault is None:
            return
        if layout.name != "rank-major" or args.outRows:
            room = f"out_rows and the arrays beside it have room for {args.outRowsMax} rows"
            raise ValueError(f"{room}, but {least} arrive")

    def _note_route(self, tokens: int) -> None:
        self.calls, self.routes = self.calls + 1, self.routes + 1
        self._layout = self._next_layout
        self._tokens, self._rows, self._capacity, self._kept = tokens, None, None, ()

    def _note_dispatch(self, prepared: Prepared, arrays: Tuple[Any, ...], options: Mapping[str, Any]) -> None:
        self._capacity, self._sent = prepared.capacity, prepared.rows
        self._note_call(prepared, True, arrays, options)

    def _note_completed_dispatch(self, prepared: Prepared) -> None:
        self._capacity, self._kept = prepared.capacity, ()
        prepared.busy.release()
        if self._fault is not None and self._fault.value:
            self._raise_fault(combines_later=True)

    def _note_combine(self, prepared: Prepared, arrays: Tuple[Any, ...], options: Mapping[str, Any]) -> None:
        self._summed = prepared.rows
        self._note_call(prepared, False, arrays, options)

    def _note_call(
        self, prepared: Prepared, combines_later: bool, arrays: Tuple[Any, ...], options: Mapping[str, Any]
    ) -> None:
        self.calls += 1
        prepared.busy.release()
        if prepared.send_only:  # complete() raises the fault
            self._kept, self._completes_dispatch = (*arrays, *options.values()), combines_later
        elif self._fault is not None and self._fault.value:
            self._raise_fault(combines_later)

    def combine(self, rows: Any, out: Any, *, stream: Any = None, **options: Unpack[CombineOptions]) -> None:
        """Brings the experts' rows back and sums them for each token. Collective.

        rows     [out rows, hidden] bfloat16, float16 or float32, in the layout that dispatch produced;
                 view().combine_rows, or high-throughput window memory in a layout with one row per token, is read without
                 a copy. None or without rows if nothing came here
        out      [tokens, hidden] of the same dtype. None or without rows if this rank routed 0 tokens
        weights  "applied": a plain sum; "apply": each expert's row times its weight; in flat and rank-major
                 layouts, where a row stands for several experts, weights count as 1
        wire     the format in which rows travel: "row", the row type; "fp8", "fp8-block", "nvfp4" or "logfmt10",
                 which lose digits and read no rows in place. hidden is then a multiple of 128. Alike on all ranks
        topk_weights      [tokens, topk] float32, for "apply" in a handle with combine_weights, in place of the route's.
                          Weights that are passed to the route are cheaper
        bias0, bias1      [tokens, hidden] of the same dtype, added to the sum
        grads             a Grads: gradients of the weights, which travel too, on all ranks or on none
        ready             a Ready: words that say which rows the experts have made; None: all are there
        cumulative_wait_ns  [nranks] int64, to which the time waited for each rank is added
        row_type, hidden  as in dispatch
        send_only         starts the combine; complete() finishes it
        sms               GPU multiprocessors of this call; 0: the communicator's setting

        With the cuda backend, rows must have as many rows as out_rows of the dispatch, unless an earlier counts() has
        told their number."""
        try:
            prepared = self._find_combine((rows, out), options)
            pointer, queue = self._pointer or self._require_alive(), stream_address(stream)
            self._native.call(self._library.moeCombine, pointer, prepared.reference, queue)
        except Exception as error:  # noqa: B902
            self.take_part("combine", error, stream, {"rows": rows, "out": out, **options})
            raise
        self._note_combine(prepared, (rows, out), options)

    def _rows_to_read(self) -> Optional[int]:
        """The rows that arrays of a combine must have; None if the layout decides them, or if they are not known."""
        if self._layout.rows is not None:
            return None
        least = self._rows_due()
        return self._capacity if least is None else least

    def _find_combine(self, arrays: Tuple[Any, ...], options: Mapping[str, Any]) -> Prepared:
        least = self._rows_to_read()
        form, addresses = form_of(("combine", self._layout.tokens_max, self._tokens, least is None), arrays, options)
        found = self._prepared.find(form, addresses, least)
        if found is not None:
            return found
        given = complete("combine", options, COMBINE_DEFAULTS)
        arguments = self._arguments(CombineArguments, "combine")
        arguments.reads_nothing = self._delivers_nothing()
        args = arguments.make(*arrays, capacity=self._capacity, **given)
        return self._prepared.make(form, addresses, args, arguments, ("rows", "out"), arrays, options)

    def _check_combine(self, tokens: int, arrays: Tuple[Any, ...], given: Dict[str, Any]) -> Tuple[Any, Arguments]:
        """moeCombineArgs_t of a combine along a route that is yet to come."""
        arguments = CombineArguments(self._comm.place, self._next_layout, tokens, lambda: None)
        return arguments.make(*arrays, capacity=0, **given), arguments

    def complete(self, stream: Any = None) -> None:
        """Finishes the send-only dispatch or combine of this handle: waits for the peers and fills the outputs. Collective.
        Raises InvalidUsage if nothing is outstanding."""
        try:
            address, refusal = stream_address(stream), None
        except Exception as error:  # noqa: B902  the others wait for this rank
            address, refusal = 0, error
        self._call("moeComplete", address)
        self._kept = ()
        if refusal is not None:
            raise refusal
        self._raise_fault(combines_later=self._completes_dispatch)

    # ---- Plans -------------------------------------------------------------------------------------------------------

    def plan(
        self, tokens: int, *, dispatch: Optional[DispatchPlan] = None, combine: Optional[CombinePlan] = None
    ) -> Plan:
        """Prepares the calls of steps whose arrays have the same shapes and dtypes every time. The Plan's calls take
        the arrays of a step, and only check that they are like these. Local.

            planned = {"rows": arrived, "out": sums, "weights": "apply"}
            plan = handle.plan(len(rows), dispatch={"rows": rows, "out_rows": arrived}, combine=planned)
            plan.route_dispatch(topk_idx, topk_weights, rows, arrived)
            plan.combine(experts(arrived), sums)

        tokens    of this rank in each of these steps
        dispatch  a dictionary: rows, out_rows and keywords of dispatch(); None: the plan has no dispatch
        combine   a dictionary: rows, out and keywords of combine(); None: the plan has no combine

        The plan uses the tokens bound of the next route, see set_tokens_bound(). Raises ValueError, TypeError, and
        InvalidUsage if the handle is destroyed."""
        self._comm.native.require_alive()
        self._require_alive()
        if dispatch is None and combine is None:
            raise ValueError("plan: neither dispatch nor combine is given")
        return Plan(self, integer(tokens, "tokens", 0, self._next_layout.tokens_max), dispatch, combine)
