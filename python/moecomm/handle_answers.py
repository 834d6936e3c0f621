"""Answers of a handle about its route and its memory."""

from __future__ import annotations

from typing import List, NamedTuple, Optional


class Counts(NamedTuple):
    """The counts of the rows that the last route brings to this rank: the answer of moeHandleGetCounts. The lists are
    copies on the host.

    rows                    tokens that arrive here, each once
    layout_rows             rows of the output: the "out rows" of shapes
    local_experts           experts of this rank
    first_expert            global index of local expert 0
    rows_per_rank           [nranks] tokens that arrive from each rank
    rows_per_expert         [local experts] rows of each expert, without padding
    rows_wanted             what would have arrived without rows_budget; otherwise as rows
    rows_wanted_per_expert  [local experts] the same of each expert
    rows_of_all_experts     [experts] rows of each expert of all ranks, on all ranks; None without expert_counts"""

    rows: int
    layout_rows: int
    local_experts: int
    first_expert: int
    rows_per_rank: List[int]
    rows_per_expert: List[int]
    rows_wanted: int
    rows_wanted_per_expert: List[int]
    rows_of_all_experts: Optional[List[int]]


class DeviceCounts(NamedTuple):
    """The same counts for kernels: addresses of device memory, which are valid for the handle's life. Each route writes
    the counts, in stream order.

    rows                    int32 [1]
    rank_offsets            int32 [nranks + 1]: where the rows of each rank begin, flat
    rows_per_expert         int32 [local experts]
    expert_offsets          int32 [local experts + 1]: where expert-major groups begin; the last one is layout_rows
    fault                   uint32 [1]: not 0 if the handle delivers nothing, see Handle.status()
    rows_wanted             int32 [1]: as in Counts
    rows_wanted_per_expert  int32 [local experts]: as in Counts
    rows_of_all_experts     int32 [experts]: as in Counts; None without expert_counts"""

    rows: int
    rank_offsets: int
    rows_per_expert: int
    expert_offsets: int
    fault: int
    rows_wanted: int
    rows_wanted_per_expert: int
    rows_of_all_experts: Optional[int]


class Statistics(NamedTuple):
    """Sums that a handle keeps in stream order: addresses of int64 in device memory, valid for the handle's life.
    Nothing resets them: take differences. moeStatistics_t defines them.

    rows_per_expert   [local experts] rows that dispatches brought, without padding
    rows_per_rank     [nranks] tokens that dispatches brought from each rank
    dispatch_wait_ns  [nranks] waited for each rank in dispatches, and in route() before them
    combine_wait_ns   [nranks] waited for each rank in combines
    late_steps        [nranks] steps in which this rank waited for that rank much longer than for any third rank"""

    rows_per_expert: int
    rows_per_rank: int
    dispatch_wait_ns: int
    combine_wait_ns: int
    late_steps: int


class HandleView(NamedTuple):
    """The slots of a low-latency rank-major handle: addresses of window memory on the device, valid for the handle's life.
    The memory is the caller's from the end of dispatch until combine begins.

    rows          [nranks, tokens_max] rows that came with a dispatch whose out_rows is None
    side          [nranks, tokens_max] their payloads; None without side_bytes_max
    combine_rows  [nranks, tokens_max] rows for combine(), which then copies nothing"""

    rows: int
    side: Optional[int]
    combine_rows: int


class Arrivals(NamedTuple):
    """Words that show a kernel beside dispatch which experts' rows have arrived: addresses of device memory, valid for
    the handle's life.

    words   uint64 [local experts]: shifted right by MOE_ARRIVAL_SHIFT, the dispatches whose rows of an expert are complete
    failed  uint32 [1]: not 0 if missing words will not come"""

    words: int
    failed: int
