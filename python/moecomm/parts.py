"""The arguments of dispatch and combine beside the rows, one class per concern. The calls check what is in them, under
names such as cast.out_scales. They are plain tuples, which are quick to make and to look through in every decode
step."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from .names import CastType, Ids, PayloadLayout, ScaleLayout


class Cast(NamedTuple):
    """A cast of the rows of a dispatch on their way: see moeCast_t. hidden is a multiple of 128. out_rows takes
    [out rows, hidden] codes of one byte (float8_e4m3fn, uint8, int8), of mxfp4 and nvfp4 [out rows, hidden / 2] bytes of
    two (uint8, int8, float4_e2m1fn_x2).

    type          alike on all ranks. "fp8" (float32 scales), "fp8-pow2" (powers of two as float32) and "fp8-ue8m0" (as
                  bytes) have a scale for 128 elements, "mxfp8" and "mxfp4" for 32, "nvfp4" for 16
    out_scales    [out rows, words]: float32 or 32-bit words of four bytes (int32, uint32), or these bytes. In
                  high-throughput mode they are in the same kind of memory as out_rows. words is hidden / 128; for
                  fp8-ue8m0 hidden / 512, rounded up; for nvfp4 hidden / 64. None where out_rows is
    scale_layout  "row-major", or "token-contiguous", which is [words, out_rows_max], rank-major [words, nranks *
                  tokens_max], expert-major-padded [local experts, words, nranks * tokens_max] words; or "128x4", not
                  with float32 scales: blocks of 128 rows as block-scaled tensor cores load them, of Handle.scale_shape()
                  bytes
    input_scale   float32, one number: elements are multiplied by it before the cast
    global_scale  float32, one number, of nvfp4: scales are made of it times a block's magnitude. Both are read when the
                  rows are cast; None: 1
    exact         no lower bound for a block's magnitude, for gradients
    weights_on_input  in a handle with topk 1: each row is multiplied by its token's weight of the route first, on all
                  ranks; combine then takes "applied" """

    type: CastType
    out_scales: Any = None
    scale_layout: ScaleLayout = "row-major"
    input_scale: Any = None
    global_scale: Any = None
    exact: bool = False
    weights_on_input: bool = False


class Describe(NamedTuple):
    """Arrays in which a dispatch describes the arriving rows, and counters that it adds to: see moeDescribe_t. None:
    not wanted.

    out_topk_idx         flat, rank-major: [out rows, topk] expert or invalid_id, of the handle's index type
    out_topk_weights     float32; flat, rank-major: [out rows, topk]; expert-major layouts: [out rows]
    out_source_index     [out rows] int32: source rank * tokens_max + source token
    out_row_experts      expert-major layouts: [out rows] int32 expert of each row
    out_rows_per_expert  [local experts] int32 rows that arrived for each expert
    out_expert_offsets   expert-major: [local experts + 1] int32
    out_block_offsets    expert-major with a layout "128x4": [local experts + 1] int32, where each expert's blocks begin
    out_layout_range     expert-major layouts: [local experts, nranks] int64, first row in the expert's group << 32 | rows
                         of each source
    cumulative_rows      [local experts] int32, to which the rows of each expert are added
    cumulative_wait_ns   [nranks] int64, to which the time waited for each rank is added
    ids                  "local" or "global": how out_topk_idx and out_row_experts name experts
    invalid_id           what they have for none of this rank"""

    out_topk_idx: Any = None
    out_topk_weights: Any = None
    out_source_index: Any = None
    out_row_experts: Any = None
    out_rows_per_expert: Any = None
    out_expert_offsets: Any = None
    out_block_offsets: Any = None
    out_layout_range: Any = None
    cumulative_rows: Any = None
    cumulative_wait_ns: Any = None
    ids: Ids = "local"
    invalid_id: int = -1


class Payload(NamedTuple):
    """One of up to four payloads of a dispatch, which travel beside each row: see moePayload_t.

    rows    [tokens, n] of any dtype. The n elements are a multiple of 4 bytes. Strides are multiples of 4 bytes, such
            as those of columns; elements of other sizes than 4 bytes lie behind one another. None or without rows if
            this rank routed 0 tokens
    out     layout "row-major": [out rows, n] of the same dtype, with strides of its own. "token-contiguous" and
            "128x4": 32-bit words or bytes in the shapes that Cast.out_scales has there, contiguous. None where out_rows
            is
    layout  "row-major", "token-contiguous", "128x4" or "array"
    bytes   of a row; needed where both are addresses or None

    "array" is for a single payload that is an array of whole rows on all ranks: [tokens, n] and [out rows, n] of the
    same dtype, contiguous, aligned to 16 bytes, with rows of a multiple of 16 bytes. It goes the way of the rows."""

    rows: Any
    out: Any
    layout: PayloadLayout = "row-major"
    bytes: Optional[int] = None


class Ready(NamedTuple):
    """How a combine learns which of its rows the experts have made, in a layout with a row per expert: see moeReady_t.
    Limit the sms of such a call.

    words         int32 that a kernel on another stream counts up as it makes the rows: a row is read when its word has
                  reached `value`. None: all rows are there
    block_rows    64 or 128: each word stands for so many of an expert's rows; 0: words are [local experts]
    value         the number that a word must have reached
    complete_sms  with send_only: GPU multiprocessors of complete(), which may then read rows; 0: as many as sms"""

    words: Any = None
    block_rows: int = 0
    value: int = 1
    complete_sms: int = 0


class Grads(NamedTuple):
    """Gradients of the weights, which travel with the rows of a combine, on all ranks or on none: see moeGrads_t.

    weight_grads      float32, as Describe.out_topk_weights. None or without rows if nothing came here
    out_weight_grads  [tokens, topk] float32. None or without rows if this rank routed 0 tokens"""

    weight_grads: Any
    out_weight_grads: Any
