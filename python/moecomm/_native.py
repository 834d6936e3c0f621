"""The C interface, mirrored: constants, structs and function prototypes of include/moecomm.h, and the search for
libmoecomm.so. Nothing here has behaviour; comm.py and handle.py do. tests/test_header.py compares every name, field and
type with the header."""

import ctypes
import ctypes.util
import functools
import os
import pathlib
from ctypes import POINTER, c_char, c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, Dict, List

# ---- Constants -------------------------------------------------------------------------------------------------------

CONSTANTS = {
    "moeSuccess": 0,
    "moeInvalidArgument": 1,
    "moeInvalidUsage": 2,
    "moeCudaError": 3,
    "moeSystemError": 4,
    "moeRemoteError": 5,
    "moeTimeout": 6,
    "moeAborted": 7,
    "moeUnsupported": 8,
    "moeInProgress": 9,
    "moeInternalError": 10,
    "moeBackendAuto": 0,
    "moeBackendHost": 1,
    "moeBackendCuda": 2,
    "moeModeAuto": 0,
    "moeModeHt": 1,
    "moeModeLl": 2,
    "moeLayoutFlat": 0,
    "moeLayoutExpertMajor": 1,
    "moeLayoutExpertMajorPadded": 2,
    "moeLayoutRankMajor": 3,
    "moeRowBytes": 0,
    "moeRowBf16": 1,
    "moeRowFp16": 2,
    "moeRowFp32": 3,
    "moeIndexInt32": 0,
    "moeIndexInt64": 1,
    "moeCastNone": 0,
    "moeCastFp8": 1,
    "moeCastFp8Ue8m0": 2,
    "moeCastFp8Pow2": 3,
    "moeCastMxfp8": 4,
    "moeCastMxfp4": 5,
    "moeCastNvfp4": 6,
    **dict(zip(("moeWireRow", "moeWireFp8", "moeWireFp8Block", "moeWireNvfp4", "moeWireLogfmt10"), range(5))),
    **dict(zip(("moeScalesRowMajor", "moeScalesTokenContiguous", "moeScales128x4"), range(3))),
    "moeWeightsApplied": 0,
    "moeWeightsApply": 1,
    "moeSendOnly": 1,
    "moeCombineGrads": 2,
    "moeCastExact": 4,
    "moeWeightsOnInput": 8,
    "moeRefused": 16,
    "moeTokensRefused": -1,
    "moePadIndices": 1,
    "moePadRows": 2,
    **dict(zip(("moeIdsLocal", "moeIdsGlobal"), range(2))),
    **dict(zip(("moeDuplicatesFail", "moeDuplicatesMerge"), range(2))),
    "moeTransportSelf": 0,
    "moeTransportDirect": 1,
    "moeTransportShm": 2,
    "moeTransportCudaIpc": 3,
    "moeTransportTcp": 4,
    "moeTransportVerbs": 5,
    "moeTransportIbgda": 6,
    "moeLogNone": 0,
    "moeLogError": 1,
    "moeLogWarn": 2,
    "moeLogInfo": 3,
    "moeLogDebug": 4,
    "moeLogTrace": 5,
    "moeMemoryWindow": 0,
    "moeMemoryPrivate": 1,
}
globals().update(CONSTANTS)
if TYPE_CHECKING:

    def __getattr__(name: str) -> int: ...


# Bit of moeCombineArgs_t.flags: this combine carries gradients of the weights. It is needed only where neither pointer
# shows that, because arrays without elements have the address NULL.
COMBINE_GRADS = 2

# ---- Types -----------------------------------------------------------------------------------------------------------

moeStream_t = c_void_p
moeComm_t = c_void_p
moeHandle_t = c_void_p
moeResult_t = ctypes.c_int

moeLogFunction_t = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
moeAllocate_t = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_int32)
moeFree_t = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_int32)


class _Sized(ctypes.Structure):
    """A struct whose first field is its size, set here as the C initializers do. Keywords set other fields."""

    _defaults_: Dict[str, int] = {}

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **{**self._defaults_, **fields})


class moeUniqueId_t(ctypes.Structure):
    _fields_ = [("bytes", c_uint8 * 128)]


class moeConfig_t(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int32),
        ("device", c_int32),
        ("modes", c_int32),
        ("tokensMax", c_int32),
        ("llTokensMax", c_int32),
        ("rowBytesMax", c_int32),
        ("sideBytesMax", c_int32),
        ("topkMax", c_int32),
        ("expertsMax", c_int32),
        ("timeoutMs", c_int32),
        ("sms", c_int32),
        ("logLevel", c_int32),
        ("stagingRows", c_int64),
        ("heapBytes", c_int64),
        ("interfaceName", c_char_p),
        ("log", moeLogFunction_t),
        ("logUser", c_void_p),
        ("allocate", moeAllocate_t),
        ("free", moeFree_t),
        ("allocateUser", c_void_p),
        ("domainSize", c_int32),
        ("transport", c_int32),
        ("llSets", c_int32),
        ("stagingAreas", c_int32),
        ("dumpFolder", c_char_p),
        ("watchFolder", c_char_p),
    ]
    _defaults_ = {"device": -1}


class moeMemorySize_t(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("windowBytes", c_uint64),
        ("controlBytes", c_uint64),
        ("llBytes", c_uint64),
        ("htBytes", c_uint64),
        ("heapBytes", c_uint64),
    ]


class moeLimits_t(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("ranksMax", c_int32),
        ("topkMax", c_int32),
        ("expertsMax", c_int32),
        ("tokensMax", c_int32),
        ("llTokensMax", c_int32),
        ("rowAlignment", c_int32),
        ("rowBytesMax", c_int32),
        ("sideBytesMax", c_int32),
        ("outstandingMax", c_int32),
        ("llSets", c_int32),
    ]


class moeCommInfo_t(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("nranks", c_int32),
        ("rank", c_int32),
        ("backend", c_int32),
        ("device", c_int32),
        ("domain", c_int32),
        ("domainCount", c_int32),
        ("domainRank", c_int32),
        ("domainSize", c_int32),
        ("timeoutMs", c_int32),
        ("bulkCopies", c_int32),
        ("windowBytes", c_uint64),
        ("heapBytes", c_uint64),
    ]


class moePeerInfo_t(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int32),
        ("transport", c_int32),
        ("domain", c_int32),
        ("processId", c_int32),
        ("device", c_int32),
        ("reserved", c_int32),
        ("hostName", c_char * 64),
    ]


class moeHandleConfig_t(_Sized):
    _fields_ = [("size", c_size_t)] + [
        (name, c_int32)
        for name in (
            *("experts", "topk", "layout", "mode", "tokensMax", "expertAlignment", "indexType"),
            *("arrivals", "duplicates", "statistics", "combineWeights", "rowsBudget", "expertCounts", "localOnly"),
        )
    ]


class moePlacement_t(_Sized):
    _fields_ = [
        ("size", c_size_t),
        *((name, c_int32) for name in ("logicalExperts", "physicalExperts")),
        *((name, POINTER(c_int32)) for name in ("logical", "ranks", "localExperts")),
    ]


class moeStatistics_t(_Sized):
    _fields_ = [("size", c_size_t)] + [
        (name, c_void_p)
        for name in ("rowsPerExpert", "rowsPerRank", "dispatchWaitNs", "combineWaitNs", "lateSteps")
    ]


class moeSent_t(_Sized):
    _fields_ = [("size", c_size_t)] + [
        (name, c_void_p) for name in ("tokensPerRank", "tokensPerDomain", "tokensPerExpert", "tokenToRank")
    ]


class moeArrivals_t(_Sized):
    _fields_ = [("size", c_size_t), ("words", c_void_p), ("failed", c_void_p)]


class moeCounts_t(_Sized):
    _fields_ = [
        ("size", c_size_t),
        *((name, c_int32) for name in ("rows", "layoutRows", "localExperts", "firstExpert")),
        *((name, POINTER(c_int32)) for name in ("rowsPerRank", "rowsPerExpert")),
        *((name, c_int32) for name in ("rowsWanted", "reserved")),
        ("rowsWantedPerExpert", POINTER(c_int32)),
        ("rowsOfAllExperts", POINTER(c_int32)),
    ]


class moeDeviceCounts_t(_Sized):
    # Addresses of device memory, which Python must not dereference.
    _fields_ = [
        ("size", c_size_t),
        *((name, c_void_p) for name in ("rows", "rankOffsets", "rowsPerExpert", "expertOffsets")),
        *((name, c_int32) for name in ("mode", "reserved")),
        *((name, c_void_p) for name in ("fault", "rowsWanted", "rowsWantedPerExpert", "rowsOfAllExperts")),
    ]


class moeHandleStatus_t(_Sized):
    _fields_ = [("size", c_size_t), ("result", c_int32), ("rank", c_int32), ("sentence", c_char_p)]


class moeHandleView_t(_Sized):
    _fields_ = [("size", c_size_t), ("rows", c_void_p), ("side", c_void_p), ("combineRows", c_void_p)]


class moePayload_t(_Sized):
    _fields_ = [
        *(("size", c_size_t), ("bytes", c_int32), ("outLayout", c_int32)),
        *(("in", c_void_p), ("inRowStride", c_int64), ("inWordStride", c_int64)),
        *(("out", c_void_p), ("outRowStride", c_int64), ("outWordStride", c_int64)),
    ]


class moeDispatchArgs_t(_Sized):
    _fields_ = [
        ("size", c_size_t),
        *(("rows", c_void_p), ("rowType", c_int32), ("hidden", c_int32)),
        *(("side", c_void_p), ("sideBytes", c_int32)),
        ("flags", c_int32),
        *(("outRows", c_void_p), ("outSide", c_void_p), ("outRowsMax", c_int64)),
        *((name, c_void_p) for name in ("outTopkIdx", "outTopkWeights", "outSourceIndex", "outExpertOffsets")),
        ("sms", c_int32),
        ("cast", c_int32),
        ("outScales", c_void_p),
        ("scaleLayout", c_int32),
        ("padding", c_int32),
        ("idKind", c_int32),
        ("invalidId", c_int32),
        *((name, c_void_p) for name in ("outLayoutRange", "outSourceInfo", "outRowExperts")),
        *((name, c_void_p) for name in ("cumulativeRows", "cumulativeWaitNs", "inputScale", "globalScale")),
        *(("outScaleBlockOffsets", c_void_p), ("payloads", POINTER(moePayload_t)), ("payloadCount", c_int32)),
    ]


class moeCombineArgs_t(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("rows", c_void_p),
        ("rowType", c_int32),
        ("hidden", c_int32),
        ("weights", c_int32),
        ("flags", c_int32),
        ("out", c_void_p),
        ("bias0", c_void_p),
        ("bias1", c_void_p),
        ("weightGrads", c_void_p),
        ("outWeightGrads", c_void_p),
        ("sms", c_int32),
        ("wire", c_int32),
        *((name, c_void_p) for name in ("cumulativeWaitNs", "topkWeights", "ready")),
        ("readyRows", c_int32),
        *(("readyValue", c_uint32), ("completeSms", c_int32)),
    ]


# ---- Functions -------------------------------------------------------------------------------------------------------

# name: (result, arguments)
PROTOTYPES = {
    "moeGetVersion": (moeResult_t, [POINTER(c_int32)]),
    "moeGetErrorString": (c_char_p, [moeResult_t]),
    "moeGetLastError": (c_char_p, [moeComm_t]),
    "moeGetUniqueId": (moeResult_t, [POINTER(moeUniqueId_t)]),
    "moeCommGetMemorySize": (moeResult_t, [c_int32, POINTER(moeConfig_t), POINTER(moeMemorySize_t)]),
    "moeCommInit": (moeResult_t, [POINTER(moeComm_t), c_int32, c_int32, POINTER(moeUniqueId_t), POINTER(moeConfig_t)]),
    "moeCommInitFromEnv": (moeResult_t, [POINTER(moeComm_t), POINTER(moeConfig_t)]),
    "moeCommDestroy": (moeResult_t, [moeComm_t]),
    "moeCommAbort": (moeResult_t, [moeComm_t]),
    "moeCommSetTimeout": (moeResult_t, [moeComm_t, c_int32]),
    "moeCommDump": (moeResult_t, [moeComm_t, c_char_p]),
    "moeCommGetAsyncError": (moeResult_t, [moeComm_t, POINTER(moeResult_t)]),
    "moeGetLimits": (moeResult_t, [moeComm_t, POINTER(moeLimits_t)]),
    "moeCommGetInfo": (moeResult_t, [moeComm_t, POINTER(moeCommInfo_t)]),
    "moeCommGetPeerInfo": (moeResult_t, [moeComm_t, c_int32, POINTER(moePeerInfo_t)]),
    "moeMemAlloc": (moeResult_t, [moeComm_t, c_size_t, POINTER(c_void_p)]),
    "moeMemFree": (moeResult_t, [moeComm_t, c_void_p]),
    "moeMemPoolUse": (moeResult_t, [moeComm_t]),
    "moeMemPoolAlloc": (c_void_p, [c_int64, c_int32, moeStream_t]),
    "moeMemPoolFree": (None, [c_void_p, c_int64, c_int32, moeStream_t]),
    "moeHandleCreate": (moeResult_t, [POINTER(moeHandle_t), moeComm_t, POINTER(moeHandleConfig_t)]),
    "moeHandleDestroy": (moeResult_t, [moeHandle_t]),
    "moeHandleSetTokensBound": (moeResult_t, [moeHandle_t, c_int32]),
    "moeHandleSetPlacement": (moeResult_t, [moeHandle_t, POINTER(moePlacement_t), moeStream_t]),
    # Weights are a device address, like all rows.
    "moeRoute": (moeResult_t, [moeHandle_t, c_void_p, c_void_p, c_int32, moeStream_t]),
    "moeHandleGetCounts": (moeResult_t, [moeHandle_t, POINTER(moeCounts_t)]),
    "moeHandleGetDeviceCounts": (moeResult_t, [moeHandle_t, POINTER(moeDeviceCounts_t)]),
    "moeHandleGetStatus": (moeResult_t, [moeHandle_t, POINTER(moeHandleStatus_t)]),
    "moeHandleGetSent": (moeResult_t, [moeHandle_t, POINTER(moeSent_t), moeStream_t]),
    "moeHandleGetArrivals": (moeResult_t, [moeHandle_t, POINTER(moeArrivals_t)]),
    "moeHandleGetStatistics": (moeResult_t, [moeHandle_t, POINTER(moeStatistics_t)]),
    "moeHandleGetView": (moeResult_t, [moeHandle_t, POINTER(moeHandleView_t)]),
    "moeDispatch": (moeResult_t, [moeHandle_t, POINTER(moeDispatchArgs_t), moeStream_t]),
    "moeRouteDispatch": (
        moeResult_t,
        [moeHandle_t, c_void_p, c_void_p, c_int32, POINTER(moeDispatchArgs_t), moeStream_t],
    ),
    "moeCombine": (moeResult_t, [moeHandle_t, POINTER(moeCombineArgs_t), moeStream_t]),
    "moeComplete": (moeResult_t, [moeHandle_t, moeStream_t]),
}

LIBRARY_NAMES = ("libmoecomm.so.0.1", "libmoecomm.so")


def candidates() -> List[str]:
    """Where the library may be, best first: MOECOMM_LIBRARY, next to this package (the wheel has a folder for it), then
    the system's directories."""
    chosen = os.environ.get("MOECOMM_LIBRARY")
    if chosen:
        return [chosen]
    here = pathlib.Path(__file__).resolve().parent
    beside = [str(at / name) for at in (here, here / "lib") for name in LIBRARY_NAMES if (at / name).exists()]
    found = ctypes.util.find_library("moecomm")
    return beside + list(LIBRARY_NAMES) + ([found] if found else [])


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The loaded libmoecomm."""
    return load()


def load() -> ctypes.CDLL:
    """Loads the library and declares its functions. Raises OSError with every path that was tried."""
    reasons = []
    for path in candidates():
        try:
            # RTLD_LOCAL, because no other library needs these symbols.
            library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            reasons.append(f"{path}: {error}")
            continue
        for name, (result, arguments) in PROTOTYPES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        return library
    raise OSError("libmoecomm was not found; set MOECOMM_LIBRARY to its path. Tried: " + "; ".join(reasons))
