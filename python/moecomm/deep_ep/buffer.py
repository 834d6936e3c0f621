"""Buffer: DeepEP's class of that name, over communicators and handles of moecomm."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch

from .. import errors
from ..torch.groups import Members, place_of
from ..values import integer
from .checks import INDEX_TYPES, require, require_divisible
from .dispatch_handle import Place
from .events import EventHandle, EventOverlap, Lane
from .high_throughput import HighThroughput
from .layout import LayoutMaker
from .low_latency import LowLatency
from .routes import Routes, agree
from .settings import Config, low_latency_size_hint
from .standing import Standing

Layout = Tuple[torch.Tensor, Optional[torch.Tensor], torch.Tensor, torch.Tensor, EventOverlap]


class Buffer(HighThroughput, LowLatency, Standing):
    """DeepEP's Buffer. docs/guide/deepep.md says method by method what works, what differs and what raises.

    group               a torch.distributed.ProcessGroup, or an object like vLLM's StatelessProcessGroup; or None, with
    comm                an mpi4py communicator
    explicitly_destroy  destroy() may be called

    The constructor is collective. Memory is taken when dispatch() or low_latency_dispatch() is first called, and what
    these need decides how much: num_nvl_bytes, num_rdma_bytes and low_latency_mode are kept as attributes only.
    allow_nvlink_for_low_latency_mode=False lets the rows of low_latency_dispatch() travel by adapters or sockets even on
    one host, as MOECOMM_TRANSPORT says. use_fabric and allow_mnnvl have no effect: memory is shared over an NVLink
    fabric where that works (MOECOMM_WINDOW). num_qps_per_rank has no meaning here. enable_shrink says that ranks may be lost: see recover(). Attributes: rank, group_size, group, and the
    sizes. Tensors are on torch's current GPU, or on the CPU if there is none: see configure().

    What the calls of high throughput have in common:

    previous_event           the call waits for this event instead of the current stream; or None
    async_finish             the current stream does not wait for the call; the event that it returns does
    allocate_on_comm_stream  outputs are made on the communication stream, get_comm_stream()"""

    num_sms: int = 20
    _num_sms_chosen = False

    def __init__(
        self,
        group: Any = None,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: int = 24,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        explicitly_destroy: bool = False,
        enable_shrink: bool = False,
        comm: Any = None,
        use_fabric: bool = False,
    ):
        if group is None and comm is None:
            raise ValueError("group and comm are None, expected one of them")
        self.num_nvl_bytes = integer(num_nvl_bytes, "num_nvl_bytes", 0, 2**63 - 1)
        self.num_rdma_bytes = integer(num_rdma_bytes, "num_rdma_bytes", 0, 2**63 - 1)
        self.low_latency_mode, self.explicitly_destroy = low_latency_mode, explicitly_destroy
        self.enable_shrink = enable_shrink
        self.group = group if group is not None else comm
        members = Members(self.group)
        settings, self.domain_size = agree(members)
        self.rank, self.group_size = members.rank, members.size
        self.device = place_of(settings["device"])
        self.place = Place(self.rank, self.group_size, self.domain_size, self.device)
        self.sums_weights = bool(settings["sum_weights"])
        self.lane = Lane(self.device)
        self._layout = LayoutMaker(self.group_size, self.domain_size, self.device)
        self.routes = Routes(members, self.device, settings, 0 if allow_nvlink_for_low_latency_mode else 1)
        self._local: Dict[bool, torch.Tensor] = {}

    def destroy(self) -> None:
        """Frees everything that no handle of this Buffer needs. Other Buffers of the group may be given these handles.
        The rest is freed with the last handle. All work must have run. Not collective. Raises InvalidUsage unless
        explicitly_destroy was set, as DeepEP does."""
        if not self.explicitly_destroy:
            raise errors.InvalidUsage("destroy() is called, but explicitly_destroy is False")
        self.routes.release()

    # ---- Sizes, streams and masks ------------------------------------------------------------------------------------

    @staticmethod
    def is_sm90_compiled() -> bool:
        """True: quantised rows travel on every GPU that moecomm supports, and on CPUs."""
        return True

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Multiprocessors of later high-throughput calls that get no Config. Without this the library chooses.
        `new_num_sms`: an even number."""
        if integer(new_num_sms, "new_num_sms", 1) % 2:
            raise ValueError(f"new_num_sms is {new_num_sms}, expected an even number")
        Buffer.num_sms, Buffer._num_sms_chosen = new_num_sms, True

    @staticmethod
    def reset_num_sms() -> None:
        """Undoes set_num_sms(): the library chooses again. DeepEP has no such method."""
        Buffer.num_sms, Buffer._num_sms_chosen = 20, False

    @staticmethod
    def capture() -> EventOverlap:
        """An event of the current stream, for previous_event."""
        return EventOverlap(EventHandle())

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """A Config with num_sms. `num_ranks` does not change it."""
        integer(num_ranks, "num_ranks", 1)
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """A Config with num_sms. `num_ranks` does not change it."""
        return Buffer.get_dispatch_config(num_ranks)

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        """Bytes that a Buffer will allocate on each rank for low_latency_dispatch() of these sizes.

        num_max_dispatch_tokens_per_rank  the most tokens of a rank
        hidden       elements of a row, bfloat16
        num_ranks    ranks of the group
        num_experts  of all ranks together"""
        return low_latency_size_hint(num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts)

    def get_comm_stream(self) -> Any:
        """The torch.cuda.Stream on which calls are queued; None on CPUs."""
        return self.lane.stream

    def get_local_buffer_tensor(
        self, dtype: torch.dtype, size: Optional[torch.Size] = None, offset: int = 0, use_rdma_buffer: bool = False
    ) -> torch.Tensor:
        """A tensor over memory that nothing else uses, kept until a larger one is asked for. DeepEP's tensor is over
        its communication buffer, which callers zero between shapes. Here zeroing is unnecessary and has no effect.

        dtype   of the tensor
        size    of the tensor; None: all of num_nvl_bytes, with use_rdma_buffer of num_rdma_bytes, behind offset
        offset  in bytes, a multiple of the dtype's size"""
        everything = self.num_rdma_bytes if use_rdma_buffer else self.num_nvl_bytes
        offset = integer(offset, "offset", 0, everything)
        if offset % dtype.itemsize:
            raise ValueError(f"offset is {offset}, expected a multiple of {dtype.itemsize} bytes, the size of {dtype}")
        count = (everything - offset) // dtype.itemsize if size is None else torch.Size(size).numel()
        end = offset + count * dtype.itemsize
        if end > everything:
            name = "num_rdma_bytes" if use_rdma_buffer else "num_nvl_bytes"
            raise ValueError(f"size is {tuple(size or ())}, which ends at byte {end}, but {name} is {everything}")
        kept = self._local.get(use_rdma_buffer)
        if kept is None or kept.numel() < end:
            kept = self._local[use_rdma_buffer] = torch.empty(end, dtype=torch.uint8, device=self.device)
        found = kept[offset:end].view(dtype)
        return found if size is None else found.view(size)

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Does nothing where low_latency_query_mask_buffer() says `mask` already. A living rank cannot be masked, since
        it may still send, and a lost one cannot come back: both raise NotImplementedError. Raises InvalidUsage
        unless enable_shrink was set, as DeepEP does.

        rank_to_mask  0..ranks - 1
        mask          True: the rank is lost; False: it is not"""
        if not self.enable_shrink:
            raise errors.InvalidUsage("low_latency_update_mask_buffer() is called, but enable_shrink is False")
        rank = integer(rank_to_mask, "rank_to_mask", 0, self.group_size - 1)
        lost = rank in self.routes.lost
        if mask and not lost:
            raise NotImplementedError(
                f"mask is True, but rank {rank} is not lost: end its process, and call recover() with losses_max on the others"
            )
        if lost and not mask:
            raise NotImplementedError(f"mask is False, but rank {rank} is lost, and cannot come back: make a new Buffer")

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """mask_status: [ranks] int32, becomes 1 for ranks that recover() has lost, and 0 for the others."""
        require(mask_status, "mask_status", "[ranks]", (self.group_size,), (torch.int32,)).zero_()
        for rank in self.routes.lost:
            mask_status[rank].fill_(1)

    def low_latency_clean_mask_buffer(self) -> None:
        """Does nothing: a lost rank cannot come back, and no other is masked."""

    def get_dispatch_layout(
        self,
        topk_idx: torch.Tensor,
        num_experts: int,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> Layout:
        """The layout of the rows that dispatch() will send. Local, on the communication stream.

        topk_idx     [tokens, topk] int64 or int32: global expert, -1 = unused
        num_experts  a multiple of the ranks

        Returns num_tokens_per_rank [ranks] int32; num_tokens_per_rdma_rank [domains] int32, or None in one domain;
        num_tokens_per_expert [num_experts] int32; is_token_in_rank [tokens, ranks] bool; event."""
        require(topk_idx, "topk_idx", "[tokens, topk]", (None, None), tuple(INDEX_TYPES), self.device)
        require_divisible(num_experts, self.group_size)
        stream = self.lane.start(None, previous_event, async_finish)
        with self.lane.on(stream):
            found = self._layout.make(topk_idx, num_experts, 0 if stream is None else stream.cuda_stream)
        return (*found, self.lane.finish(stream, async_finish, (topk_idx,), found))

    def _sms(self, config: Optional[Config]) -> int:
        if config is not None:
            return config.num_sms
        return Buffer.num_sms if Buffer._num_sms_chosen else 0
