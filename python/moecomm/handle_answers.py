"""What a handle tells of its route and its memory."""

from __future__ import annotations

from typing import List, NamedTuple, Optional


class Counts(NamedTuple):
    """The answer of moeHandleGetCounts. The lists are copies."""

    rows: int
    layout_rows: int
    local_experts: int
    first_expert: int
    rows_per_rank: List[int]
    rows_per_expert: List[int]
    rows_wanted: int  # without rows_budget; otherwise as rows
    rows_wanted_per_expert: List[int]
    rows_of_all_experts: Optional[List[int]]  # on all ranks; None without expert_counts


class DeviceCounts(NamedTuple):
    """Addresses of int32 on the device, and of the uint32 that is not 0 if the handle delivers nothing."""

    rows: int
    rank_offsets: int
    rows_per_expert: int
    expert_offsets: int
    fault: int
    rows_wanted: int
    rows_wanted_per_expert: int
    rows_of_all_experts: Optional[int]  # None without expert_counts


class Statistics(NamedTuple):
    """Addresses of int64 on the device: see moeStatistics_t."""

    rows_per_expert: int
    rows_per_rank: int
    dispatch_wait_ns: int
    combine_wait_ns: int
    late_steps: int


class HandleView(NamedTuple):
    """Addresses of window memory."""

    rows: int
    side: Optional[int]
    combine_rows: int


class Arrivals(NamedTuple):
    """Addresses of arrival words on the device."""

    words: int
    failed: int
