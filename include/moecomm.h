/* moecomm: expert-parallel communication for Mixture-of-Experts models.
 *
 * Moves tokens to the ranks that hold their experts (dispatch) and the weighted sum of the experts' outputs back
 * (combine). C99; no CUDA header is needed; every function may be called from C, C++ and any language with a C FFI.
 *
 * How a program uses it, on every rank:
 *     moeCommInit -> moeHandleCreate -> { moeRoute -> moeDispatch -> (experts) -> moeCombine }* -> moeHandleDestroy
 *     -> moeCommDestroy
 *
 * Rules that hold for every function unless it says otherwise:
 *  - It returns moeSuccess or a reason; nothing is partly done when an argument is refused. The sentence that names
 *    the argument and the value is at moeGetLastError(comm).
 *  - "Device" memory is GPU memory with the cuda backend and any memory of the process with the host backend.
 *  - Stream-ordered calls return at once with the cuda backend (the work is queued on `stream`) and after the work
 *    with the host backend (`stream` is ignored there). They may be captured in a CUDA graph.
 *  - Collective calls are made by every rank of the communicator, in the same order. Calls on one communicator must
 *    be ordered: one thread at a time, and one stream, or streams that the caller has joined by events.
 *  - A struct argument starts with `size`. Fill it with its INITIALIZER, then set the fields you need; a zero field
 *    means what its comment says. The library takes structs of an older size (missing fields are zero) and of a newer
 *    one whose unknown tail is zero.
 *
 * The protocol behind each call, flag by flag, is in docs/internals/protocol.md. */
#ifndef MOECOMM_H_
#define MOECOMM_H_

#include <stddef.h>
#include <stdint.h>

#define MOE_VERSION_MAJOR 0
#define MOE_VERSION_MINOR 1
#define MOE_VERSION_PATCH 0
#define MOE_VERSION_CODE (MOE_VERSION_MAJOR * 10000 + MOE_VERSION_MINOR * 100 + MOE_VERSION_PATCH)

#if defined(_WIN32)
#define MOE_API
#else
#define MOE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types ------------------------------------------------------------------------------------------------------ */

/* The same type as cudaStream_t. NULL is the default stream; the host backend ignores it. */
typedef struct CUstream_st* moeStream_t;

typedef struct moeComm* moeComm_t;     /* one rank's membership of a group of ranks */
typedef struct moeHandle* moeHandle_t; /* a route and what is needed to use it again */

typedef enum moeResult {
  moeSuccess = 0,
  moeInvalidArgument = 1, /* the caller passed a bad value */
  moeInvalidUsage = 2,    /* a right value at the wrong time, or values that differ between ranks */
  moeCudaError = 3,       /* a CUDA call failed */
  moeSystemError = 4,     /* an operating system call failed, or memory ran out */
  moeRemoteError = 5,     /* another rank died, left or reported a failure */
  moeTimeout = 6,         /* a rank did not do its part within the configured time */
  moeAborted = 7,         /* moeCommAbort was called */
  moeUnsupported = 8,     /* not available on this machine or in this build */
  moeInProgress = 9,      /* not finished yet; ask again */
  moeInternalError = 10   /* a defect of the library */
} moeResult_t;

/* Values of the int32_t fields below. Enumerations are never used as field types, so that they may grow. */
enum { moeBackendAuto = 0, moeBackendHost = 1, moeBackendCuda = 2 };
enum { moeModeAuto = 0, moeModeHt = 1, moeModeLl = 2 };
enum {
  moeLayoutFlat = 0,              /* [rows][hidden]: a token once per rank; rows by source rank, then source token */
  moeLayoutExpertMajor = 1,       /* [rows][hidden]: grouped by local expert, each group padded to expertAlignment */
  moeLayoutExpertMajorPadded = 2, /* [localExperts][nranks * tokensMax][hidden] */
  moeLayoutRankMajor = 3          /* [nranks][tokensMax][hidden]: a token once per rank */
};
enum { moeRowBytes = 0, moeRowBf16 = 1, moeRowFp16 = 2, moeRowFp32 = 3 };
enum { moeIndexInt32 = 0, moeIndexInt64 = 1 };
enum {
  moeCastNone = 0,
  moeCastFp8 = 1,     /* to e4m3 with one fp32 scale for 128 elements: element = code * scale */
  moeCastFp8Ue8m0 = 2 /* the same with a power of two as the scale, one byte: 2^(byte - 127) */
};
/* The rule of both casts, for each block of 128 elements (docs/guide/formats.md). amax is the largest magnitude of its
 * numbers, at least 1e-4 and at most FLT_MAX. The fp32 scale is amax / 448, rounded; the power of two is
 * 2^ceil(log2(amax / 448)). A code is the element times 448 / amax (or times 2^-exponent), rounded to nearest even and
 * saturated at 448. So a block whose elements are all far below 1e-4 loses digits, and is zeros from 2e-10 down: that
 * bound is for activations, and moeCastExact takes it away. A NaN does not count towards amax and stays NaN. An
 * infinity counts as FLT_MAX and becomes 448, so that it decodes to FLT_MAX and the rest of its block to zeros. */
enum { moeScalesRowMajor = 0, moeScalesTokenContiguous = 1 };
enum {
  moeWeightsApplied = 0, /* the caller has multiplied the rows by their weights, or wants a plain sum */
  moeWeightsApply = 1    /* combine multiplies each expert's row by the weight that moeRoute was given */
};
/* Bits of `flags`. */
enum {
  moeSendOnly = 1,     /* start now, finish in moeComplete */
  moeCombineGrads = 2, /* combine: with gradients of the weights, on all ranks. weightGrads and outWeightGrads imply it;
                          a rank at which nothing arrived, and which routed nothing, may have neither, and says it */
  moeCastExact = 4     /* dispatch with cast: amax has no lower bound to speak of (5.3e-36). For gradients */
};
enum {
  moeTransportSelf = 0,
  moeTransportDirect = 1,  /* a thread of the same process: by its address */
  moeTransportShm = 2,     /* shared host memory */
  moeTransportCudaIpc = 3, /* mapped GPU memory of another process */
  moeTransportTcp = 4,     /* carried by CPU threads over TCP sockets */
  moeTransportVerbs = 5,   /* RDMA, posted by a CPU thread with ibverbs */
  moeTransportIbgda = 6    /* RDMA, posted by the GPU to mlx5 queues */
};
enum { moeLogNone = 0, moeLogError = 1, moeLogWarn = 2, moeLogInfo = 3, moeLogDebug = 4, moeLogTrace = 5 };
enum { moeMemoryWindow = 0, moeMemoryPrivate = 1 };

/* ---- Version and errors ----------------------------------------------------------------------------------------- */

/* The version of the library that is loaded, as MOE_VERSION_CODE. Any thread; `version` must not be NULL. */
MOE_API moeResult_t moeGetVersion(int32_t* version);

/* A short name for a result, as static text; never NULL, also for values that are no result. Any thread. */
MOE_API const char* moeGetErrorString(moeResult_t result);

/* The sentence written by the first detector of this communicator's failure: rank, peer, call, value. After a refused
 * argument, the sentence of the latest refusal. With comm NULL: the latest failure on the calling thread of a call that
 * has no communicator (moeCommInit, moeGetUniqueId, ...). Never NULL; empty if nothing failed. The text stays valid
 * until the next failing call on this communicator (comm NULL: on this thread). Any thread. After moeTimeout of a step
 * it waits until the ranks know which of them does not answer, or holds up the others: about a second, at most two. */
MOE_API const char* moeGetLastError(moeComm_t comm);

/* ---- Communicators ---------------------------------------------------------------------------------------------- */

/* Names one group of ranks: where its members meet, and a 128-bit secret that every connection must present. Opaque;
 * send the 128 bytes to every rank over any channel that you trust. Usable for one moeCommInit per rank. */
typedef struct moeUniqueId {
  uint8_t bytes[128];
} moeUniqueId_t;

/* Takes log lines. `level` is a moeLog value; `line` has no line end and is valid during the call. Any thread may call.
 */
typedef void (*moeLogFunction_t)(void* user, int32_t level, const char* line);

/* The caller's own allocator. `kind` is moeMemoryWindow (mapped by peers: with the cuda backend it must come from
 * cudaMalloc; with the host backend it is only possible when all ranks are threads of one process) or moeMemoryPrivate.
 * `allocate` returns memory aligned to 256 bytes, or NULL when there is none. Called during init, handle creation and
 * destruction only, by the calling thread. */
typedef void* (*moeAllocate_t)(void* user, size_t bytes, int32_t kind);
typedef void (*moeFree_t)(void* user, void* memory, size_t bytes, int32_t kind);

/* What a communicator is built for. Every rank must pass the same values, except `device`, `heapBytes`, `timeoutMs`,
 * `sms`, `interfaceName`, the log and the allocator. An environment variable MOECOMM_<NAME> (docs/reference/tuning.md)
 * is used where a field is zero. */
typedef struct moeConfig {
  size_t size;
  int32_t backend;      /* moeBackend value; 0: cuda if a usable GPU is there, else host */
  int32_t device;       /* CUDA ordinal; -1: the calling thread's current device. Ignored by the host backend */
  int32_t modes;        /* moeMode value whose buffers are made; 0: both */
  int32_t tokensMax;    /* HT: most tokens that a rank sends in one call; 0: 4096 */
  int32_t llTokensMax;  /* LL: the same; 0: 128 */
  int32_t rowBytesMax;  /* most bytes of one row, a multiple of 16; 0: 16384 */
  int32_t sideBytesMax; /* most bytes of one row's side payload, a multiple of 16; 0: none */
  int32_t topkMax;      /* most experts of a token, 1..32; 0: 8 */
  int32_t expertsMax;   /* most experts over all ranks; 0: 1024 */
  int32_t timeoutMs;    /* every wait for another rank ends within this; 0: 30000. See moeGetLastError */
  int32_t sms;          /* GPU multiprocessors that one call may use; 0: the library's choice */
  int32_t logLevel;     /* moeLog value; 0: MOECOMM_LOG_LEVEL, else warn */
  int64_t stagingRows;  /* HT: rows that may arrive for an output outside the window, or be prepared by a combine (see
                           moeCombineArgs_t.rows); 0: nranks * tokensMax; -1: none */
  int64_t heapBytes;    /* bytes for moeMemAlloc on this rank; 0: none */
  const char* interfaceName; /* network interface of the bootstrap, "eth0"; NULL: chosen. Read during init only */
  moeLogFunction_t log;      /* NULL: stderr, or MOECOMM_LOG_FILE */
  void* logUser;
  moeAllocate_t allocate; /* NULL: the library allocates */
  moeFree_t free;
  void* allocateUser;
  int32_t
      domainSize;    /* ranks of a domain, which reach each other by loads and stores; divides nranks. 0: as many
                        consecutive ranks as share a host, if all domains have equally many; must agree between ranks */
  int32_t transport; /* moeTransport value from moeTransportTcp on, between domains; 0: chosen. Must agree */
} moeConfig_t;
#define MOE_CONFIG_INITIALIZER \
  { sizeof(moeConfig_t), 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Bytes that one rank will allocate, before anything is allocated; the formula is in docs/reference/memory.md. */
typedef struct moeMemorySize {
  size_t size;
  uint64_t windowBytes;  /* symmetric window, heap included */
  uint64_t controlBytes; /* of these: flags, counts and row headers */
  uint64_t llBytes;      /* of these: low-latency slots */
  uint64_t htBytes;      /* of these: high-throughput slots and staging */
  uint64_t heapBytes;    /* of these: for moeMemAlloc */
} moeMemorySize_t;
#define MOE_MEMORY_SIZE_INITIALIZER \
  { sizeof(moeMemorySize_t), 0, 0, 0, 0, 0 }

/* Makes the id of a new group and starts to listen for its ranks. One process calls it, any thread, and sends the id to
 * the others; it must live until all ranks have called moeCommInit. Waits at most the configured timeout for them.
 * Returns moeInvalidArgument (id NULL), moeSystemError (no usable network interface). */
MOE_API moeResult_t moeGetUniqueId(moeUniqueId_t* id);

/* The memory that moeCommInit with this configuration will allocate. Any thread, no side effects. config NULL:
 * defaults. */
MOE_API moeResult_t moeCommGetMemorySize(int32_t nranks, const moeConfig_t* config, moeMemorySize_t* bytes);

/* Joins the group. Collective; blocks until all ranks have joined, at most the timeout.
 *   comm     out; set on success only
 *   nranks   1..moeLimits_t.ranksMax; rank 0..nranks-1, each once
 *   id       from moeGetUniqueId
 *   config   NULL: defaults
 * Ranks may be processes or threads of one process, on GPUs of their own or sharing one.
 * Returns moeInvalidArgument, moeInvalidUsage (ranks disagree), moeTimeout or moeRemoteError (naming the missing or
 * dead rank), moeSystemError, moeCudaError, moeUnsupported (backend or peer access not available). */
MOE_API moeResult_t moeCommInit(moeComm_t* comm, int32_t nranks, int32_t rank, const moeUniqueId_t* id,
                                const moeConfig_t* config);

/* The same with nranks, rank and meeting point taken from the launcher's environment: moerun, torchrun, Slurm/PMI or
 * Open MPI (docs/guide/launchers.md says which variables). Returns also moeInvalidUsage if no launcher is recognised,
 * and moeTimeout if the meeting point's name is not resolved in time. */
MOE_API moeResult_t moeCommInitFromEnv(moeComm_t* comm, const moeConfig_t* config);

/* Leaves the group and frees everything, handles and window memory included. Not collective: peers are told, and do not
 * see it as a failure unless they wait for this rank in an operation, then or later: that ends at once with
 * moeRemoteError, "rank 1 has left ...". Waits for this rank's queued work; after LL combines for peers of its domain
 * to leave too, and after moeTimeout for what moeGetLastError waits for, each at most a second. comm NULL: does
 * nothing. In a process that the communicator's has forked it does nothing either, and every other call is refused
 * there with moeInvalidUsage. */
MOE_API moeResult_t moeCommDestroy(moeComm_t comm);

/* Ends all waits of this communicator, here and on the peers (there as moeAborted too, naming this rank). Any thread.
 * All later calls return moeAborted, but the queries, moeMemFree, moeHandleDestroy and moeCommDestroy. */
MOE_API moeResult_t moeCommAbort(moeComm_t comm);

/* The communicator's first asynchronous failure, or moeSuccess. Never blocks. Any thread. Once failed, every later call
 * returns the failure until moeCommDestroy; a new communicator may be made in the same process. Ranks may notice the
 * same failure up to the timeout apart, so give the new one's timeout that much more. */
MOE_API moeResult_t moeCommGetAsyncError(moeComm_t comm, moeResult_t* error);

/* The only limits there are. */
typedef struct moeLimits {
  size_t size;
  int32_t ranksMax;
  int32_t topkMax;
  int32_t expertsMax;
  int32_t tokensMax;    /* HT, per rank and call */
  int32_t llTokensMax;  /* LL, per rank and call */
  int32_t rowAlignment; /* a row, a side payload and every row pointer is a multiple of this many bytes */
  int32_t rowBytesMax;
  int32_t sideBytesMax;
  int32_t outstandingMax; /* HT dispatches, and apart from them LL operations (of handles that were made one after the
                             other), that may await moeComplete at once; of HT combines one may, and then no other HT
                             combine may start */
} moeLimits_t;
#define MOE_LIMITS_INITIALIZER \
  { sizeof(moeLimits_t), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* comm NULL: what the library can do at most. Else: what this communicator was built for. Any thread. */
MOE_API moeResult_t moeGetLimits(moeComm_t comm, moeLimits_t* limits);

typedef struct moeCommInfo {
  size_t size;
  int32_t nranks;
  int32_t rank;
  int32_t backend; /* moeBackendHost or moeBackendCuda */
  int32_t device;  /* CUDA ordinal; -1 with the host backend */
  int32_t domain;  /* index of this rank's domain: the ranks that load and store each other's window */
  int32_t domainCount;
  int32_t domainRank; /* this rank's index in its domain */
  int32_t domainSize;
  int32_t timeoutMs;
  int32_t bulkCopies; /* 1 if the kernels use the GPU's bulk-copy engine */
  uint64_t windowBytes;
  uint64_t heapBytes;
} moeCommInfo_t;
#define MOE_COMM_INFO_INITIALIZER \
  { sizeof(moeCommInfo_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
MOE_API moeResult_t moeCommGetInfo(moeComm_t comm, moeCommInfo_t* info);

typedef struct moePeerInfo {
  size_t size;
  int32_t rank;
  int32_t transport; /* moeTransport value in use towards this peer */
  int32_t domain;
  int32_t processId;
  int32_t device; /* the peer's CUDA ordinal, or -1 */
  int32_t reserved;
  char hostName[64];
} moePeerInfo_t;
#define MOE_PEER_INFO_INITIALIZER              \
  {                                            \
    sizeof(moePeerInfo_t), 0, 0, 0, 0, 0, 0, { \
      0                                        \
    }                                          \
  }
MOE_API moeResult_t moeCommGetPeerInfo(moeComm_t comm, int32_t peer, moePeerInfo_t* info);

/* ---- Window memory ---------------------------------------------------------------------------------------------- */

/* Memory of this rank inside the symmetric window, aligned to 256 bytes, for outputs that peers write without a copy.
 * Local; takes from config.heapBytes. bytes 0: *memory is NULL. Returns moeInvalidArgument when the heap is too small
 * (the sentence has the largest free block). Not stream-ordered; one thread at a time. */
MOE_API moeResult_t moeMemAlloc(moeComm_t comm, size_t bytes, void** memory);

/* Gives it back. No queued work may still use it. memory NULL: does nothing. */
MOE_API moeResult_t moeMemFree(moeComm_t comm, void* memory);

/* ---- Routes ----------------------------------------------------------------------------------------------------- */

/* The same on every rank. Experts are spread in order over the ranks, experts / nranks each and one more on each of the
 * first experts % nranks ranks. */
typedef struct moeHandleConfig {
  size_t size;
  int32_t experts; /* over all ranks, 1..expertsMax */
  int32_t topk;    /* entries per token, 1..topkMax */
  int32_t layout;  /* moeLayout value; 0: FLAT */
  int32_t mode;    /* moeMode value; 0: the library's choice, see docs/reference/tuning.md and moeDeviceCounts_t.mode */
  int32_t tokensMax;       /* most tokens of a rank; 0: the communicator's limit for the mode */
  int32_t expertAlignment; /* EXPERT_MAJOR: each expert's group starts at a multiple of this many rows; 0: 1 */
  int32_t indexType;       /* moeIndex value of topk_idx, in and out; 0: int32 */
  int32_t arrivals;        /* EXPERT_MAJOR layouts: 1: arrival words, see moeHandleGetArrivals; 0: none */
  int32_t reserved;        /* 0 */
} moeHandleConfig_t;
#define MOE_HANDLE_CONFIG_INITIALIZER \
  { sizeof(moeHandleConfig_t), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Makes a handle and its memory. Local, but all ranks must make the same handles. At most 2^24 - 1 rows may arrive. */
MOE_API moeResult_t moeHandleCreate(moeHandle_t* handle, moeComm_t comm, const moeHandleConfig_t* config);

/* Frees it; the caller has finished all work that uses it. handle NULL: does nothing. */
MOE_API moeResult_t moeHandleDestroy(moeHandle_t handle);

/* Decides who gets which token at which row. Collective, stream-ordered, graph-safe.
 *   topkIdx      device [tokens][topk] int32 or int64: global expert, -1 = unused; an expert at most once per token.
 *                Else an asynchronous moeInvalidArgument that names token, entry and value. Read by this call only
 *   topkWeights  device [tokens][topk] float, or NULL for 1.0 everywhere. Read by this call only
 *   tokens       0..tokensMax; may differ per rank and call. Pointers may be NULL if 0
 * Ranks exchange counts and row positions here, in both modes. The route may then be used by any number of dispatches
 * and combines. Handles that differ between ranks are refused here, on all of them: moeInvalidUsage names the field and
 * two values. See docs/internals/protocol.md, "Route". */
MOE_API moeResult_t moeRoute(moeHandle_t handle, const void* topkIdx, const float* topkWeights, int32_t tokens,
                             moeStream_t stream);

typedef struct moeCounts {
  size_t size;
  int32_t rows;       /* tokens that arrive here, each once */
  int32_t layoutRows; /* rows of the layout: EXPERT_MAJOR: groups with padding; PADDED, RANK_MAJOR: all slots */
  int32_t localExperts;
  int32_t firstExpert;          /* global index of local expert 0 */
  const int32_t* rowsPerRank;   /* host [nranks]; valid until the handle's next moeRoute */
  const int32_t* rowsPerExpert; /* host [localExperts]; the same */
} moeCounts_t;
#define MOE_COUNTS_INITIALIZER \
  { sizeof(moeCounts_t), 0, 0, 0, 0, NULL, NULL }

/* Waits, at most the timeout, for what the last moeRoute has received. Host call, not during stream capture (after a
 * replay of captured calls, synchronize the stream first); not collective. Returns moeInvalidUsage if there was none.
 */
MOE_API moeResult_t moeHandleGetCounts(moeHandle_t handle, moeCounts_t* counts);

/* The same counts for kernels: valid for the handle's life, written by moeRoute in stream order. */
typedef struct moeDeviceCounts {
  size_t size;
  const int32_t* rows;        /* device [1] */
  const int32_t* rankOffsets; /* device [nranks + 1]: FLAT rows from rank r are rankOffsets[r] .. rankOffsets[r+1]-1 */
  const int32_t* rowsPerExpert; /* device [localExperts] */
  const int32_t*
      expertOffsets; /* device [localExperts + 1]: EXPERT_MAJOR group starts; the last is the layout's rows */
  int32_t mode;      /* moeModeHt or moeModeLl: what the handle uses, if the library chose it too */
  int32_t reserved;
} moeDeviceCounts_t;
#define MOE_DEVICE_COUNTS_INITIALIZER \
  { sizeof(moeDeviceCounts_t), NULL, NULL, NULL, NULL, 0, 0 }
/* Local; as soon as there is the handle. */
MOE_API moeResult_t moeHandleGetDeviceCounts(moeHandle_t handle, moeDeviceCounts_t* counts);

/* Words by which a kernel that runs beside moeDispatch learns whose rows are there, so that expert GEMMs begin before
 * it ends. words[e] >> MOE_ARRIVAL_SHIFT counts the dispatches of the handle, replays of captured ones too, of which
 * all rows of local expert e are in the outputs, with side payload, scales and what describes them. Words never go
 * back. HT in one domain: the experts are complete in order, an eighth of them at a time; else all at the end.
 * docs/internals/protocol.md, "Arrival words", says how to launch such a kernel; examples/expert_overlap.cu is one. */
typedef struct moeArrivals {
  size_t size;
  const uint64_t* words;  /* device [localExperts]; load with acquire semantics, and give waits a deadline */
  const uint32_t* failed; /* device [1]: not 0: a step of this rank has failed, and words that are missing stay so */
} moeArrivals_t;
#define MOE_ARRIVALS_INITIALIZER \
  { sizeof(moeArrivals_t), NULL, NULL }
#define MOE_ARRIVAL_SHIFT 24

/* The pointers are the same for the handle's life. Any thread. Returns moeInvalidUsage for a handle that was made
 * without config.arrivals. */
MOE_API moeResult_t moeHandleGetArrivals(moeHandle_t handle, moeArrivals_t* arrivals);

/* Window memory of a LL handle of layout RANK_MAJOR that saves copies. Each is packed for the rows of the call that
 * uses it; tokensMax is the handle's. */
typedef struct moeHandleView {
  size_t size;
  const void* rows;  /* device [nranks][tokensMax][row bytes]: what came with a dispatch whose outRows is NULL. After a
                        cast, a row is its codes, then its scale words, up to a multiple of 16 bytes */
  const void* side;  /* device [nranks][tokensMax][sideBytes]: the same; NULL if config.sideBytesMax is 0 */
  void* combineRows; /* device [nranks][tokensMax][row bytes]: for the rows of moeCombine, which peers read there */
} moeHandleView_t;
#define MOE_HANDLE_VIEW_INITIALIZER \
  { sizeof(moeHandleView_t), NULL, NULL, NULL }

/* The pointers are the same for the handle's life. What they point to belongs to the caller from the end of the
 * handle's dispatch until the beginning of its combine, and to the library before and after. Two LL handles of a
 * communicator have memory of their own; if there are more, they share it (each new one with the fewest others), and
 * an operation of another handle that shares it ends the caller's turn as well. Returns moeInvalidUsage for a handle
 * of another mode or layout. */
MOE_API moeResult_t moeHandleGetView(moeHandle_t handle, moeHandleView_t* view);

/* ---- Dispatch and combine --------------------------------------------------------------------------------------- */

/* Row pointers are device memory, aligned to 16 bytes, and stay valid until the work has run. Other arrays are aligned
 * to their elements, topkIdx too. "outRows" below is the number of rows of the handle's layout: FLAT and EXPERT_MAJOR
 * as received, PADDED and RANK_MAJOR all slots. Outputs overlap neither inputs nor each other; what the host can see of
 * that is refused. */
typedef struct moeDispatchArgs {
  size_t size;
  const void* rows;        /* [tokens][hidden]; NULL if this rank routed 0 tokens */
  int32_t rowType;         /* moeRow value; 0: opaque bytes, hidden counts bytes */
  int32_t hidden;          /* elements of a row; hidden times the element size is a multiple of 16 */
  const void* side;        /* [tokens][sideBytes] carried with the rows (scales, say), or NULL */
  int32_t sideBytes;       /* multiple of 16; 0: none */
  int32_t flags;           /* moeSendOnly, moeCastExact */
  void* outRows;           /* [outRows][hidden]. HT: window memory is written by the peers, other memory costs a local
                              copy. LL RANK_MAJOR: NULL leaves the rows where they came, see moeHandleGetView */
  void* outSide;           /* [outRows][sideBytes], in the same kind of memory as outRows; NULL if sideBytes is 0 or
                              outRows is NULL */
  int64_t outRowsMax;      /* rows that outRows can hold. If more arrive every rank gets moeInvalidArgument naming both
                              numbers, and nothing is written */
  void* outTopkIdx;        /* FLAT, RANK_MAJOR: [outRows][topk] local expert or -1, the handle's index type; or NULL.
                              Other layouts: NULL */
  float* outTopkWeights;   /* FLAT, RANK_MAJOR: [outRows][topk], 0 where the index is -1; EXPERT_MAJOR*: [outRows]; or
                              NULL */
  int32_t* outSourceIndex; /* [outRows] source rank * tokensMax of the handle + source token; or NULL */
  int32_t* outExpertOffsets; /* EXPERT_MAJOR: [localExperts + 1] copy of the offsets; or NULL. Other layouts: NULL */
  int32_t sms;               /* GPU multiprocessors for this call; 0: the communicator's setting */
  int32_t cast;        /* LL: moeCast value, the same on all ranks. rowType and hidden are those of `rows`, hidden a
                          multiple of 128; outRows takes [outRows][hidden] codes of one byte */
  void* outScales;     /* with cast: the scales, in 32-bit words: one fp32, or the UE8M0 bytes of 4 neighbouring
                          blocks, first block lowest, 0 for none. May be NULL if outRows is */
  int32_t scaleLayout; /* moeScales value. ROW_MAJOR: [outRows][words]. TOKEN_CONTIGUOUS: [words][outRowsMax], of
                          RANK_MAJOR [words][nranks * tokensMax], of EXPERT_MAJOR_PADDED
                          [localExperts][words][nranks * tokensMax]. words: hidden / 128, or a fourth, rounded up */
  int32_t reserved;    /* 0 */
} moeDispatchArgs_t;
#define MOE_DISPATCH_ARGS_INITIALIZER \
  { sizeof(moeDispatchArgs_t), NULL, 0, 0, NULL, 0, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, 0, NULL, 0, 0 }

/* Sends each token to the ranks that hold its experts, once per rank. Collective, stream-ordered, graph-safe. Rows
 * arrive in the order source rank, then source token, on every run. Padding rows are left untouched. hidden, rowType,
 * sideBytes and cast must be the same on all ranks; else all return moeInvalidUsage naming the field and two values.
 * Returns moeInvalidArgument, moeInvalidUsage (no route; an operation of this
 * handle still awaits moeComplete; too many outstanding), moeCudaError, or the communicator's failure.
 * docs/internals/protocol.md, "Dispatch". */
MOE_API moeResult_t moeDispatch(moeHandle_t handle, const moeDispatchArgs_t* args, moeStream_t stream);

typedef struct moeCombineArgs {
  size_t size;
  const void* rows; /* [outRows][hidden] in the layout that dispatch produced; NULL if nothing arrived here (else every
                       rank gets moeInvalidArgument, as for a moeMemAlloc block that is too small). Peers read
                       them directly if they are window memory (HT: FLAT, RANK_MAJOR) or moeHandleGetView's combineRows
                       (LL); else rows for peers are made of them: HT in config.stagingRows, which must be enough */
  int32_t rowType;  /* moeRowBf16, moeRowFp16 or moeRowFp32 */
  int32_t hidden;
  int32_t weights;   /* moeWeights value; ranks may differ. moeWeightsApply needs one row per expert: an EXPERT_MAJOR
                        layout */
  int32_t flags;     /* moeSendOnly, moeCombineGrads */
  void* out;         /* [tokens][hidden]; NULL if this rank routed 0 tokens */
  const void* bias0; /* [tokens][hidden] added to the sum, or NULL. May be `out` itself */
  const void* bias1; /* the same, added after bias0 */
  const float* weightGrads; /* gradients of the weights, in the layout of outTopkWeights of dispatch; NULL if there are
                               none, on any rank, or if nothing arrived here */
  float* outWeightGrads;    /* [tokens][topk], 0 for unused entries; NULL if there are none, or if this rank routed 0
                               tokens. With gradients on some ranks only all get moeInvalidUsage */
  int32_t sms;
  int32_t reserved; /* 0 */
} moeCombineArgs_t;
#define MOE_COMBINE_ARGS_INITIALIZER \
  { sizeof(moeCombineArgs_t), NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0 }

/* Brings the rows back and sums them for each token. Collective, stream-ordered, graph-safe. The sum is made in fp32
 * with separately rounded products and sums: per rank over its experts in top-k order, rounded to the row type, then
 * over the ranks in rank order, then the biases. So the result has the same bits on every run and on every backend. A
 * token with no expert gets the biases, or zeros. hidden, rowType and whether there are gradients must be the same on
 * all ranks. Returns as moeDispatch. docs/internals/protocol.md, "Combine". */
MOE_API moeResult_t moeCombine(moeHandle_t handle, const moeCombineArgs_t* args, moeStream_t stream);

/* Finishes the send-only dispatch or combine of this handle: waits for the peers and fills the outputs. No GPU
 * multiprocessor is held between the two calls. Collective, stream-ordered, graph-safe.
 * Returns moeInvalidUsage if nothing is outstanding. */
MOE_API moeResult_t moeComplete(moeHandle_t handle, moeStream_t stream);

#ifdef __cplusplus
}
#endif
#endif /* MOECOMM_H_ */
