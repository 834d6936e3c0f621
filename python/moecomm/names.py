"""The names that options take, as types. tests/test_options.py compares them with the tables that the calls look up."""

from __future__ import annotations

from typing import Literal

# Where the work runs, and where arrays are.
Backend = Literal["auto", "host", "cuda"]
# How rows travel: high throughput, for large batches, or low latency, for decoding.
Mode = Literal["auto", "ht", "ll"]
# How arriving rows are ordered: see moeLayout values.
LayoutName = Literal["flat", "expert-major", "expert-major-padded", "rank-major"]
# The dtype of expert ids.
IndexType = Literal["int32", "int64"]
# The treatment of an expert that a token names again: a fault, or its weights add up.
Duplicates = Literal["fail", "merge"]
# Faults that show only while the work runs: calls raise them, or only Handle.status() reports them.
OnFault = Literal["raise", "status"]
# The elements of a row. Rows of bytes cannot be summed.
RowType = Literal["bytes", "bfloat16", "float16", "float32"]
# The formats to which dispatch can cast rows: see moeCast values and docs/guide/formats.md.
CastType = Literal["fp8", "fp8-ue8m0", "fp8-pow2", "mxfp8", "mxfp4", "nvfp4"]
# Where the scales of a Cast lie: see moeCast_t.scaleLayout.
ScaleLayout = Literal["row-major", "token-contiguous", "128x4"]
# Where a Payload lies when it has arrived. "array": it is an array of whole rows.
PayloadLayout = Literal["row-major", "token-contiguous", "128x4", "array"]
# How a Describe names experts.
Ids = Literal["local", "global"]
# Who multiplies rows by their weights: the caller has, or combine does.
Weights = Literal["applied", "apply"]
# The format in which the rows of a combine travel: see moeWire values and docs/guide/formats.md.
Wire = Literal["row", "fp8", "fp8-block", "nvfp4", "logfmt10"]
# The transport that carries rows between domains. "auto": the library chooses.
Transport = Literal["auto", "tcp", "verbs", "ibgda"]
# Levels of the log. A level includes those before it.
LogLevel = Literal["none", "error", "warn", "info", "debug", "trace"]
