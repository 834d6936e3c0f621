"""The names that options take, as types. tests/test_options.py compares them with the tables that the calls look up."""

from __future__ import annotations

from typing import Literal

Backend = Literal["auto", "host", "cuda"]
Mode = Literal["auto", "ht", "ll"]
LayoutName = Literal["flat", "expert-major", "expert-major-padded", "rank-major"]
IndexType = Literal["int32", "int64"]
Duplicates = Literal["fail", "merge"]
OnFault = Literal["raise", "status"]
RowType = Literal["bytes", "bfloat16", "float16", "float32"]
CastType = Literal["fp8", "fp8-ue8m0", "fp8-pow2", "mxfp8", "mxfp4", "nvfp4"]
ScaleLayout = Literal["row-major", "token-contiguous", "128x4"]
PayloadLayout = Literal["row-major", "token-contiguous", "128x4", "array"]
Ids = Literal["local", "global"]
Weights = Literal["applied", "apply"]
Wire = Literal["row", "fp8", "fp8-block", "nvfp4", "logfmt10"]
Transport = Literal["auto", "tcp", "verbs", "ibgda"]
LogLevel = Literal["none", "error", "warn", "info", "debug", "trace"]
