/* moecomm: expert-parallel communication for Mixture-of-Experts models.
 *
 * Dispatch moves tokens to the ranks that hold their experts. Combine brings the weighted sum of the experts' outputs
 * back. The interface is C99, needs no CUDA header, and may be called from C, C++ and any language with a C FFI.
 *
 * How a program uses it, on every rank:
 *     moeCommInit -> moeHandleCreate -> { moeRoute -> moeDispatch -> (experts) -> moeCombine }*
 *     -> moeHandleDestroy -> moeCommDestroy
 *
 * Words:
 *     HT          high throughput, for large batches: rows go straight to their final place.
 *     LL          low latency, for decoding: rows go to slots that are reserved for them.
 *     row         the bytes of one token: `hidden` elements, a multiple of 16 bytes.
 *     domain      ranks that load and store each other's memory, such as the GPUs of one host or of an NVLink fabric.
 *     window      memory of a rank that the other ranks of its domain have mapped.
 * The others are in docs/reference/glossary.md.
 *
 * Rules for every function, unless it says otherwise:
 *  - A function returns moeSuccess or the reason why not. A refused argument changes nothing: the sentence at
 *    moeGetLastError(comm) names the argument and its value.
 *  - "Device" memory is GPU memory with the cuda backend, and any memory of the process with the host backend.
 *  - A stream-ordered call queues its work on `stream` and returns at once. With the host backend it ignores `stream`
 *    and returns after the work. Stream-ordered calls may be captured in a CUDA graph.
 *  - Every rank makes the collective calls, in the same order. A call that is refused may be repeated as long as the
 *    others wait. A rank that cannot repeat it takes part with a refusal, so that nobody waits: see moeRefused.
 *  - The caller orders the calls on one communicator: one thread at a time, and one stream, or streams that the caller
 *    has joined by events. Functions marked "any thread" are free of this rule.
 *  - Some faults of arguments, such as a bad expert id, show only while the work runs. They fail no call and no
 *    communicator, with a few exceptions: see moeHandleGetStatus.
 *  - Once a communicator has failed, every later call returns the failure. Queries, moeMemFree, moeHandleDestroy and
 *    moeCommDestroy still work.
 *  - A struct argument starts with `size`. Fill it with its INITIALIZER, then set the fields you need. A zero field
 *    means what its comment says. The library takes structs of an older size, whose missing fields count as zero, and
 *    of a newer size, if the unknown tail is zero.
 *  - A struct that another one points to is optional and follows the same rules. The call reads it and keeps no pointer
 *    to it. Sentences name its fields with a dot: args.cast.outScales.
 *  - No field has an enumeration type, so that enumerations may grow: an int32_t takes a value of one of the
 *    enumerations below.
 *
 * Array shapes stand in brackets: [tokens][hidden] is `tokens` rows, one behind the other, without gaps.
 *
 * docs/internals/protocol.md has the protocol behind each call, flag by flag. */
#ifndef MOECOMM_H_
#define MOECOMM_H_

#include <stddef.h>
#include <stdint.h>

/* The major version of this header. From 1.0 on, another major version is another ABI. */
#define MOE_VERSION_MAJOR 0
/* The minor version. Before 1.0, another minor version is another ABI. */
#define MOE_VERSION_MINOR 1
/* The patch version. It changes no ABI. */
#define MOE_VERSION_PATCH 0
/* The three numbers in one. moeGetVersion returns that of the library that is loaded. */
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

/* The same type as cudaStream_t, declared here so that the header needs no CUDA. NULL is the default stream. The host
 * backend ignores it. */
typedef struct CUstream_st* moeStream_t;

/* One rank's membership of a group of ranks. moeCommInit makes it, moeCommDestroy frees it. */
typedef struct moeComm* moeComm_t;

/* A shape of operations, the latest route of that shape, and what is needed to use the route again. moeHandleCreate
 * makes it; moeHandleDestroy or moeCommDestroy frees it. */
typedef struct moeHandle* moeHandle_t;

/* The result of nearly every function. */
typedef enum moeResult {
  moeSuccess = 0,
  moeInvalidArgument = 1, /* the caller passed a bad value */
  moeInvalidUsage = 2,    /* the value is right but the time is wrong, or ranks passed different values */
  moeCudaError = 3,       /* a CUDA call failed */
  moeSystemError = 4,     /* an operating system call failed, or memory ran out */
  moeRemoteError = 5,     /* another rank died, left or reported a failure */
  moeTimeout = 6,         /* a rank did not do its part within the configured time */
  moeAborted = 7,         /* moeCommAbort was called */
  moeUnsupported = 8,     /* not available on this machine or in this build */
  moeInProgress = 9,      /* not finished yet; ask again */
  moeInternalError = 10   /* a defect of the library */
} moeResult_t;

/* ---- Values of int32_t fields ------------------------------------------------------------------------------------ */

/* Where the work runs. Auto takes a usable GPU if there is one. */
enum { moeBackendAuto = 0, moeBackendHost = 1, moeBackendCuda = 2 };

/* How rows travel. Auto chooses by the shape of the handle, and on CPUs by how many processors the ranks have
 * (docs/reference/tuning.md). */
enum { moeModeAuto = 0, moeModeHt = 1, moeModeLl = 2 };

/* How arriving rows are ordered in the output. In FLAT and RANK_MAJOR a token has one row per rank, however many of the
 * rank's experts it goes to. In the EXPERT_MAJOR layouts it has one row per expert. Rows of a group stand in the order
 * of source rank, then source token. */
enum {
  moeLayoutFlat = 0,              /* [rows][hidden]: no gaps between the rows of source ranks */
  moeLayoutExpertMajor = 1,       /* [rows][hidden]: one group per local expert, padded to expertAlignment rows */
  moeLayoutExpertMajorPadded = 2, /* [localExperts][nranks * tokensMax][hidden]: one group per local expert */
  moeLayoutRankMajor = 3          /* [nranks][tokensMax][hidden]: one group per source rank */
};

/* The elements of a row. Opaque bytes travel like the others, but cannot be summed. */
enum { moeRowBytes = 0, moeRowBf16 = 1, moeRowFp16 = 2, moeRowFp32 = 3 };

/* The element type of expert ids. */
enum { moeIndexInt32 = 0, moeIndexInt64 = 1 };

/* The formats to which a dispatch can cast elements on their way. H is hidden; bytes are per row. Each block has a
 * scale that follows from its largest magnitude, and codes are rounded to nearest even and saturate, so that element ~
 * code * scale (moeCastNvfp4: / globalScale). docs/guide/formats.md has the rules, bit for bit, the treatment of NaN
 * and infinity, the errors and the sources. */
enum {
  moeCastNone = 0,
  moeCastFp8 = 1,      /* blocks of 128, e4m3, fp32 scales: H + H/32 bytes */
  moeCastFp8Ue8m0 = 2, /* blocks of 128, e4m3, a power of two in one byte, 2^(byte - 127): H + H/128 */
  moeCastFp8Pow2 = 3,  /* blocks of 128, e4m3, a power of two as fp32: H + H/32 */
  moeCastMxfp8 = 4,    /* blocks of 32, e4m3, 2^(byte - 127): H + H/32 */
  moeCastMxfp4 = 5,    /* blocks of 32, E2M1, 2^(byte - 127): H/2 + H/32 */
  moeCastNvfp4 = 6     /* blocks of 16, E2M1, e4m3 scales beside globalScale: H/2 + H/16 */
};

/* The formats in which rows of a combine can travel. H is hidden, a multiple of 128 except with moeWireRow; bytes are
 * per row. For each token a rank sends the fp32 sum over its experts. The sum is coded once, without being rounded to
 * the row type first. The owner decodes the sums and adds them. In HT across domains each domain's sum is coded again.
 * docs/guide/formats.md has the rules, bit for bit, and the errors. */
enum {
  moeWireRow = 0,      /* the row type, rounded once more */
  moeWireFp8 = 1,      /* e4m3: H bytes */
  moeWireFp8Block = 2, /* e4m3, an fp32 scale for 128 elements: H + H/32 */
  moeWireNvfp4 = 3,    /* E2M1, e4m3 scales for 16 elements, one float: H/2 + H/16 + 16 */
  moeWireLogfmt10 = 4  /* sign and logarithm in 10 bits, two bf16 for 128 elements: H + H/4 + H/32 */
};

/* Where scales and payloads lie. moeCast_t.scaleLayout says how. */
enum {
  moeScalesRowMajor = 0,        /* the words of a row together */
  moeScalesTokenContiguous = 1, /* the words of a column together, for grouped GEMMs that load them with TMA */
  moeScales128x4 = 2,           /* blocks of 128 rows, as block-scaled tensor cores load them; scales of one byte */
  /* For payloads only: an array of whole rows instead of words, on all ranks. Its rows have a multiple of 16 bytes and
   * no strides, and both arrays are aligned to 16 bytes. It travels like the rows. */
  moePayloadArray = 3
};

/* Which side multiplies rows by their weights. */
enum {
  moeWeightsApplied = 0, /* the caller has done it, or wants a plain sum */
  /* Combine multiplies each expert's row by the weight that moeRoute was given. In FLAT and RANK_MAJOR a row stands for
   * all of a token's experts at a rank, so weights count as 1 there. */
  moeWeightsApply = 1
};

/* Bits of `flags`. They belong to moeDispatchArgs_t and moeCombineArgs_t. */
enum {
  /* Start now, finish in moeComplete. */
  moeSendOnly = 1,
  /* Of a dispatch in HT, with moeSendOnly: moeCompleteDispatch gets the outputs, and this call does not read them. So
   * rows travel while the host waits for the counts and allocates. They take the staging area. Not in a graph. */
  moeOutputsLater = 2,
  /* This rank takes part with a refusal instead of its arguments, and its operation is done in one step. The step
   * completes on all ranks and delivers nothing, and moeHandleGetStatus says on all ranks that this rank has refused
   * its arguments. In an LL combine only this rank has that fault, and its rows count as zeros. Only the flags of args
   * are read. An LL combine also reads rowType, hidden, wire and whether grads is NULL, which must be as on the other
   * ranks, and allocates memory. During stream capture the call returns moeInvalidUsage. */
  moeRefused = 16
};

/* Bits of a cast's `flags`. */
enum {
  /* For gradients: amax has practically no lower bound (with fp8 5.3e-36). Without this bit, a block far below 1e-4
   * loses digits. MX and NVFP4 casts never have a bound. */
  moeCastExact = 4,
  /* For routes with one expert per token, on all ranks: each row is multiplied by its token's weight of moeRoute before
   * it is cast. With inputScale, elements are multiplied once, by inputScale times the weight, rounded to fp32. Combine
   * then takes moeWeightsApplied. */
  moeWeightsOnInput = 8
};

/* As `tokens` of moeRoute or moeRouteDispatch this means the same as moeRefused. Except handle and stream, no other
 * arguments are read. */
enum { moeTokensRefused = -1 };

/* How a rank reaches another one. Those from moeTransportTcp on carry rows between domains. */
enum {
  moeTransportSelf = 0,    /* the rank itself */
  moeTransportDirect = 1,  /* a thread of the same process, by its address */
  moeTransportShm = 2,     /* shared host memory */
  moeTransportCudaIpc = 3, /* mapped GPU memory of another process */
  moeTransportFabric = 4,  /* the same, by a handle of the NVLink fabric, which other hosts have too */
  moeTransportTcp = 5,     /* carried by CPU threads over TCP sockets */
  moeTransportVerbs = 6,   /* RDMA, posted by a CPU thread with ibverbs */
  moeTransportIbgda = 7    /* RDMA, posted by the GPU to mlx5 queues */
};

/* Levels of the log. A level includes those before it. */
enum { moeLogNone = 0, moeLogError = 1, moeLogWarn = 2, moeLogInfo = 3, moeLogDebug = 4, moeLogTrace = 5 };

/* The values that a dispatch stores to output rows for which no row has arrived. Bits of moeDispatchArgs_t.padding. */
enum {
  moePadIndices = 1, /* outTopkIdx and outRowExperts: invalidId, outTopkWeights: 0, outSourceIndex: -1 */
  moePadRows = 2     /* outRows, outScales, the payloads' outputs: 0 */
};

/* Expert ids of moeDescribe_t.outTopkIdx and outRowExperts. */
enum { moeIdsLocal = 0 /* 0..localExperts - 1 */, moeIdsGlobal = 1 /* as in topkIdx; with a placement: physical */ };

/* The treatment of an expert that a token names again, as in the dummy batch of an idle rank, whose ids are all equal.
 */
enum {
  moeDuplicatesFail = 0, /* a fault, see moeHandleGetStatus */
  /* Counts once, at its first entry, with the sum of its weights (fp32, in top-k order). Its other entries count as
   * unused, but outWeightGrads has the first entry's gradient for each of them, because they are terms of one sum. */
  moeDuplicatesMerge = 1
};

/* The kinds of memory that the caller's allocator makes. */
enum { moeMemoryWindow = 0, moeMemoryPrivate = 1 };

/* ---- Version and errors ----------------------------------------------------------------------------------------- */

/* The version of the library that is loaded, for comparison with the MOE_VERSION_CODE of this header.
 *   version  host [1], out
 * Any thread. Returns moeInvalidArgument (version NULL). */
MOE_API moeResult_t moeGetVersion(int32_t* version);

/* A short name for a result. The text is static and never NULL, even for a value that is no result. Any thread. */
MOE_API const char* moeGetErrorString(moeResult_t result);

/* The sentence that explains a failure: rank, peer, call, value.
 *   comm  a communicator: the sentence of whoever first noticed its failure; without a failure, that of its latest
 *         refused argument.
 *         NULL: the latest failure on the calling thread of a call that has no communicator, such as moeCommInit.
 * The text is never NULL, and empty if nothing failed. It stays valid until the next failing call on this communicator
 * (comm NULL: on this thread).
 * After moeTimeout of a step, the call waits until the ranks agree on the culprit: the rank that does not answer, or
 * that holds up the others. This takes about a second, at most two. Any thread. */
MOE_API const char* moeGetLastError(moeComm_t comm);

/* ---- Communicators ---------------------------------------------------------------------------------------------- */

/* Names one group of ranks: the place where its members meet, and a 128-bit secret that every connection must prove.
 * The bytes are opaque. Send them to every rank over a channel that you trust. An id serves one moeCommInit per rank.
 */
typedef struct moeUniqueId {
  uint8_t bytes[128]; /* opaque */
} moeUniqueId_t;

/* Takes log lines. Any thread of the library may call it.
 *   user   moeConfig_t.logUser
 *   level  a moeLog value
 *   line   the text without a line end; valid during the call */
typedef void (*moeLogFunction_t)(void* user, int32_t level, const char* line);

/* The caller's own allocator. The library calls it during init, handle creation and destruction only, on the calling
 * thread.
 *   user  moeConfig_t.allocateUser
 *   kind  moeMemoryWindow: memory that peers map. With the cuda backend it must come from cudaMalloc. With the host
 *         backend it is possible only if all ranks are threads of one process.
 *         moeMemoryPrivate: memory for this rank alone.
 * moeAllocate_t returns device memory aligned to 256 bytes, or NULL if there is none. Where ranks are threads, the last
 * rank that used a window frees it, perhaps after its owner's moeCommDestroy. */
typedef void* (*moeAllocate_t)(void* user, size_t bytes, int32_t kind);

/* Frees memory of the caller's own allocator: what moeAllocate_t returned, with the same bytes and kind.
 *   user  moeConfig_t.allocateUser */
typedef void (*moeFree_t)(void* user, void* memory, size_t bytes, int32_t kind);

/* The configuration of a communicator. Its buffers are made once, for the largest call.
 * All ranks pass the same values, except `device`, `heapBytes`, `timeoutMs`, `sms`, `interfaceName`, the folders, the
 * log and the allocator. Where a field is zero, the environment variable MOECOMM_<NAME> counts
 * (docs/reference/tuning.md), then the default. */
typedef struct moeConfig {
  size_t size;
  int32_t backend;      /* moeBackend value; 0: cuda if there is a usable GPU, else host */
  int32_t device;       /* CUDA ordinal; -1: the calling thread's current device. The host backend ignores it */
  int32_t modes;        /* moeMode value whose buffers are made; 0: both */
  int32_t tokensMax;    /* HT: most tokens that a rank sends in one call; 0: 4096 */
  int32_t llTokensMax;  /* LL: most tokens that a rank sends in one call; 0: 128 */
  int32_t rowBytesMax;  /* most bytes of one row, a multiple of 16; 0: 16384 */
  int32_t sideBytesMax; /* most bytes of one row's side payload, a multiple of 16; 0: none */
  int32_t topkMax;      /* most experts of a token, 1..32; 0: 8 */
  int32_t expertsMax;   /* most experts over all ranks; 0: 1024 */
  int32_t timeoutMs;    /* every wait for another rank ends within this; 0: 30000. See moeCommSetTimeout */
  int32_t sms;          /* GPU multiprocessors that one call may use; 0: the library's choice */
  int32_t logLevel;     /* moeLog value; 0: MOECOMM_LOG_LEVEL, else warn */

  /* HT: size of the staging area, in rows. It holds rows that arrive for an output outside the window, and rows that a
   * combine prepares (moeCombineArgs_t.rows). 0: nranks * tokensMax; -1: none. */
  int64_t stagingRows;
  int64_t heapBytes; /* bytes for moeMemAlloc on this rank; 0: none */

  /* The network interface on which ranks meet, such as "eth0". NULL: the library chooses. Read during init only. */
  const char* interfaceName;
  moeLogFunction_t log;   /* NULL: stderr, or MOECOMM_LOG_FILE */
  void* logUser;          /* `user` in calls of log */
  moeAllocate_t allocate; /* NULL: the library allocates */
  moeFree_t free;         /* NULL if and only if allocate is NULL */
  void* allocateUser;     /* `user` in calls of allocate and free */

  /* Ranks of a domain; divides nranks. 0: as many consecutive ranks as reach each other's memory, so that all domains
   * are equal: those of a host, or of a clique of the NVLink fabric. */
  int32_t domainSize;
  /* The transport of rows between domains: a moeTransport value from moeTransportTcp on. 0: the library chooses. */
  int32_t transport;
  /* LL: sets of slots, 1..4; 0: 2. This many LL handles, made one after the other, have slots of their own. Their
   * operations may be outstanding together, and their rows may stay in the slots. The LL memory grows with it. */
  int32_t llSets;
  /* HT: staging areas of stagingRows rows each, 1 or 2; 0: 1. This many operations that need an area may be outstanding
   * together. For example, two combines of EXPERT_MAJOR layouts need two areas. */
  int32_t stagingAreas;
  /* An existing folder; NULL: none. Read during init only. When the communicator fails, each rank writes its latest
   * steps there, in the same form as moeCommDump. */
  const char* dumpFolder;
  /* An existing folder to which only this user may write; NULL: none. Read during init only. Each rank makes a UNIX
   * socket of mode 0600 there, and a file with its key. Through these moe_top sees the latest steps. */
  const char* watchFolder;
} moeConfig_t;
#define MOE_CONFIG_INITIALIZER \
  { sizeof(moeConfig_t), 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Bytes that one rank allocates. docs/reference/memory.md has the formulas. */
typedef struct moeMemorySize {
  size_t size;
  uint64_t windowBytes;  /* symmetric window, heap included */
  uint64_t controlBytes; /* of these: flags, counts and row headers */
  uint64_t llBytes;      /* of these: LL slots */
  uint64_t htBytes;      /* of these: HT slots and staging area */
  uint64_t heapBytes;    /* of these: for moeMemAlloc */
  uint64_t privateBytes; /* device memory of the communicator beside the window */
  uint64_t hostBytes;    /* host memory of the communicator that kernels reach; cuda backend: page-locked */
  /* What one handle takes at most, with any moeHandleConfig_t that the communicator accepts. A smaller tokensMax makes
   * the handle smaller in proportion. */
  uint64_t handleBytes;     /* device memory */
  uint64_t handleHostBytes; /* host memory that kernels reach */
  uint64_t localOnlyBytes;  /* device memory that the first handle with localOnly takes for all of them */
} moeMemorySize_t;
#define MOE_MEMORY_SIZE_INITIALIZER \
  { sizeof(moeMemorySize_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Makes the id of a new group and starts to listen for its ranks, for the configured timeout at most. One process calls
 * it and sends the id to the others. That process must live until all ranks have called moeCommInit.
 *   id  host [1], out
 * Any thread. Returns moeInvalidArgument (id NULL), moeSystemError (no usable network interface). */
MOE_API moeResult_t moeGetUniqueId(moeUniqueId_t* id);

/* The memory that moeCommInit with this configuration would allocate, and each moeHandleCreate. It allocates nothing
 * itself. With moeBackendAuto a size is that of the backend that needs more. Not included are the queues of adapters
 * between domains, and CUDA's own memory.
 *   nranks  1..moeLimits_t.ranksMax
 *   config  NULL: defaults
 *   bytes   host [1], out
 * Any thread. Returns moeInvalidArgument. */
MOE_API moeResult_t moeCommGetMemorySize(int32_t nranks, const moeConfig_t* config, moeMemorySize_t* bytes);

/* Joins the group. Collective. Blocks until all ranks have joined, at most for the timeout.
 *   comm     host [1], out; set on success only
 *   nranks   1..moeLimits_t.ranksMax
 *   rank     0..nranks - 1, each once
 *   id       from moeGetUniqueId; from moeCommReplace: this process takes the place of a lost rank, when the survivors
 *            call moeCommRecover
 *   config   NULL: defaults
 * Ranks are processes or threads of one process. Each has a GPU of its own, or several share one.
 * Returns moeInvalidArgument, moeInvalidUsage (ranks disagree), moeTimeout or moeRemoteError (naming the missing or
 * dead rank), moeSystemError, moeCudaError, moeUnsupported (backend or peer access not available). */
MOE_API moeResult_t moeCommInit(moeComm_t* comm, int32_t nranks, int32_t rank, const moeUniqueId_t* id,
                                const moeConfig_t* config);

/* Joins the group that a launcher has started. Takes nranks, rank and meeting point from the environment of moerun,
 * torchrun, Slurm/PMI or Open MPI (docs/guide/launchers.md has the variables). The rest is as in moeCommInit.
 * Returns also moeInvalidUsage (no launcher is recognised), and moeTimeout if the meeting point's name is not resolved
 * in time. */
MOE_API moeResult_t moeCommInitFromEnv(moeComm_t* comm, const moeConfig_t* config);

/* Leaves the group and frees everything, including handles and window memory, except memory of moeMemPoolAlloc. Not
 * collective.
 * Peers learn of it. They see a failure only if they wait for this rank in an operation, then or later. That wait ends
 * at once with moeRemoteError, "rank 1 has left ...".
 * The call waits for this rank's queued work and, with several domains, until its rows have been sent, at most for the
 * timeout. After LL combines it waits at most a second for peers of its domain to leave. After moeTimeout it waits
 * until the culprit is known, as moeGetLastError does.
 * comm NULL: does nothing. In a process that was forked from the communicator's it does nothing either, and every other
 * call is refused with moeInvalidUsage. */
MOE_API moeResult_t moeCommDestroy(moeComm_t comm);

/* Ends all waits of this communicator, here and on the peers. It fails with moeAborted on all ranks; the peers'
 * sentence names this rank. Any thread. */
MOE_API moeResult_t moeCommAbort(moeComm_t comm);

/* Sets the timeout of every wait of this rank for another one, for phases of a job: long while engines compile, short
 * later. Local, not stream-ordered: replays of captured calls follow it too. The new timeout also holds for waits under
 * way, counted from their beginning. Steps notice it within a few milliseconds, the threads of TCP within half a
 * second. RDMA adapters still give up a lost peer after a time that follows from config.timeoutMs.
 *   timeoutMs  1..86400000
 * Any thread. Returns moeInvalidArgument, or the communicator's failure. */
MOE_API moeResult_t moeCommSetTimeout(moeComm_t comm, int32_t timeoutMs);

/* Gives the memory of all ranks' windows back to the system while the group is idle. Addresses stay reserved: handles,
 * known routes, prepared calls, captured graphs and all pointers are valid again after moeCommResume. Collective: every
 * rank of the communicator calls it, at most a timeout apart. Not stream-ordered: it waits for all work of this rank's
 * GPU, as moeCommDestroy does. No stream may be capturing meanwhile.
 * Until moeCommResume the window has no memory, and an access to it is a fault: to memory of moeMemAlloc and
 * moeMemPoolAlloc, to addresses of moeHandleGetView, and by replays of captured graphs. What these held is lost; after
 * moeCommResume it is zeros. Calls that need the window are refused with moeInvalidUsage: moeHandleCreate, moeRoute,
 * moeDispatch, moeRouteDispatch, moeCombine, moeComplete, moeCompleteDispatch, moeMemAlloc and moeMemPoolAlloc, also
 * for handles with localOnly. All other calls work, moeCommDestroy and moeCommAbort too. A rank that dies is reported
 * as usual. Device memory beside the window stays: moeMemorySize_t.privateBytes, that of handles, and localOnlyBytes.
 * Returns moeInvalidUsage (an operation of a rank awaits moeComplete; or the communicator is suspended already) and
 * moeUnsupported (the memory of a rank's window cannot change under its addresses: it is of config.allocate, or is
 * shared by CUDA IPC). All ranks then have the same sentence, which names the first such rank; nothing has changed, and
 * the call may be repeated. Any other failure ends the communicator, with moeTimeout or moeRemoteError and the name of
 * the rank if one does not take part. */
MOE_API moeResult_t moeCommSuspend(moeComm_t comm);

/* Takes fresh memory to the addresses of all ranks' windows, after moeCommSuspend. Window memory of the caller is zeros
 * then. Collective, and not stream-ordered: steps may follow at once.
 * Returns moeInvalidUsage (the communicator is not suspended, or is disconnected), and moeSystemError or moeCudaError
 * (a rank gets no memory). In the latter case all ranks have the same sentence, which names the rank; all stay
 * suspended, and the call may be repeated. Any other failure ends the communicator, as with moeCommSuspend. */
MOE_API moeResult_t moeCommResume(moeComm_t comm);

/* Closes what ties a suspended communicator to other processes, so that its process can be checkpointed, with CRIU and
 * cuda-checkpoint for example. Until moeCommReconnect this rank has no socket, thread, event, process descriptor or
 * file in memory of this communicator, and no mapping of a peer's window. Everything else stays as moeCommSuspend
 * leaves it. Collective: every rank calls it after moeCommSuspend, at most a timeout apart. Not stream-ordered.
 * Meanwhile this rank hears of no failure, and moeCommResume and moeCommRecover are refused with moeInvalidUsage.
 * moeCommDestroy works, and so does moeCommAbort, of which no other rank learns.
 * One thread; no other call of this communicator meanwhile. Returns moeInvalidUsage (the communicator is not suspended,
 * or is disconnected already) and moeUnsupported (ranks are lost), which change nothing. Any other failure ends the
 * communicator, as with moeCommSuspend. */
MOE_API moeResult_t moeCommDisconnect(moeComm_t comm);

/* Lets the ranks meet again after moeCommDisconnect. They may have moved: to other hosts, process ids, network
 * addresses, processors and GPUs of the same kind. The communicator is suspended then, and moeCommResume wakes it.
 * Collective, and not stream-ordered.
 *   id  host [1]: a new one of moeGetUniqueId, the same on all ranks
 * One thread; no other call of this communicator meanwhile. Returns moeInvalidUsage (it is not disconnected; or a rank
 * brings another communicator, or one that was disconnected at another time), moeInvalidArgument (id NULL, damaged, or
 * of moeCommReplace), moeUnsupported (ranks of a domain no longer reach each other's memory), moeTimeout or
 * moeRemoteError (naming ranks that have not come or have died) and moeSystemError. The communicator stays disconnected
 * after these, and all ranks may call again, with another id. */
MOE_API moeResult_t moeCommReconnect(moeComm_t comm, const moeUniqueId_t* id);

/* What a group may lose in a recovery, and what it has lost. */
typedef struct moeRecovery {
  size_t size;
  int32_t lossesMax; /* in: the most ranks that the group may go on without, 0..nranks - 1, earlier losses included */
  int32_t losses;    /* out: the number of ranks that it goes on without */
  int32_t* lost;     /* host [nranks], out: these ranks, ascending. NULL: not wanted */
  /* host [evictedCount], in: ranks that the group gives up though they may live, such as one that hangs. They count as
   * lost. The same on all ranks, without this one. */
  const int32_t* evicted;
  int32_t evictedCount; /* in: entries of evicted */
  int32_t memoryFresh;  /* out: 1 if window memory is fresh, because an evicted rank still ran. Its contents are zero */
} moeRecovery_t;
#define MOE_RECOVERY_INITIALIZER \
  { sizeof(moeRecovery_t), 0, 0, NULL, NULL, 0, 0 }

/* Goes on after a failure of the communicator: a rank came too late, or has died. Collective: every rank of the
 * communicator that lives calls it when it has learned of the failure, at most `timeoutMs` apart. A rank that has
 * learned of none ends the operations of all ranks by this call, as moeCommAbort does. Not stream-ordered: it waits for
 * all work of this rank's GPU, as moeCommDestroy does. No stream may be capturing.
 *   recovery   host [1], in and out; NULL: no rank may be lost. lossesMax should be the same on all ranks
 *   timeoutMs  1..86400000: how long this rank waits for the others, and for the ends of processes of lost ranks
 * Afterwards the communicator has no failure. Addresses, handles, prepared calls, captured graphs and window memory
 * with its contents stay, and so do counters and statistics. Outputs of operations that had not ended are undefined.
 * Operations that awaited moeComplete are cancelled. Routes are void: a handle's next call must be moeRoute or
 * moeRouteDispatch; others are refused with moeInvalidUsage. Replays of graphs that only dispatch or combine deliver
 * nothing until then, and moeHandleGetStatus says why. All ranks repeat the same calls, also a rank whose own had
 * ended. Arrival words may have grown by one for a dispatch that was cut off, so readers begin to count from them.
 *  - Lost ranks are those that have died, have called moeCommDestroy, or are evicted. The others keep their numbers.
 *  - Entries that name an expert of a lost rank count as unused: no row goes there, the token's sum is without it, and
 *    its weight is not made up for. The next moeHandleSetPlacement uses only copies on living ranks.
 *  - If an evicted rank still runs, or a lost one may run on another host, all windows get fresh memory at the same
 *    addresses, so what it still stores hurts nobody. Blocks of moeMemAlloc stay taken, and are zero. When that rank
 *    runs again, its communicator fails with moeRemoteError.
 *  - New processes that wait for the places of lost ranks are taken in at the end: see moeCommReplace. lossesMax counts
 *    the losses before that, and losses those after it.
 *  - Several domains go on without lost ranks in LL. Calls of HT handles then return moeUnsupported, because rows cross
 *    to a domain by one rank there.
 *  - A lost rank cannot come back by itself.
 *  - A suspended communicator is awake afterwards, with fresh memory, also if moeCommSuspend or moeCommResume has
 *    failed.
 * One thread; no other call of this communicator meanwhile. Returns moeInvalidUsage (it is disconnected) and
 * moeInvalidArgument, which change nothing. After these failures the communicator has that one, and all ranks may call
 * again: moeRemoteError (more ranks are lost than lossesMax of some rank) and moeTimeout (a rank has not come, or the
 * process of a lost rank still runs), which name the rank; moeUnsupported (a lost rank of a domain was a thread of a
 * survivor's process there, or its window is mapped by CUDA IPC); moeSystemError or moeCudaError (a rank gets no fresh
 * memory, or cannot make the transport between domains); moeInvalidUsage (ranks have different LL handles, since one
 * was cut off while it made or destroyed some). */
MOE_API moeResult_t moeCommRecover(moeComm_t comm, moeRecovery_t* recovery, int32_t timeoutMs);

/* Makes the id with which a new process takes the number of a lost rank, and listens for that process until the number
 * is taken. Local: one survivor calls it and sends the id to the new process, over a trusted channel. Before or after
 * the recovery that goes on without the rank.
 *   rank  0..nranks - 1: a rank that has died, has called moeCommDestroy, or was evicted
 *   id    host [1], out
 * The new process calls moeCommInit with this id, the same nranks, `rank`, and the configuration of the others.
 * config.heapBytes must be that of the process before it. moeCommInit waits there, for config.timeoutMs at most.
 * Survivors take it in at the end of their next moeCommRecover, which must allow the loss, and does not return the rank
 * as lost then. The new process's epochs are those of the group. All routes are void, as after any recovery.
 *  - The new process then creates the handles that the others have, in the order in which these created them; others
 *    are refused with moeInvalidUsage. All ranks repeat the same calls, moeHandleSetPlacement included.
 *  - A new process that differs in its settings gets moeInvalidUsage, one that nobody takes in moeTimeout. The result
 *    is moeRemoteError if this survivor has ended or has made another id for the rank, or if the recovery went on
 *    without it.
 *  - If it dies or hangs while it is taken in, survivors go on without it, in the same moeCommRecover. Half of the time
 *    that is left to that call is for the new process.
 *  - The id stays good until a process has the number. The survivor's next call for the same rank ends it.
 * Not stream-ordered. One thread; no other call of this communicator meanwhile. Also after a failure. Returns
 * moeInvalidArgument (rank), moeInvalidUsage (the rank is not lost; the communicator is suspended), moeUnsupported
 * (several domains; the rank's window is shared by CUDA IPC, or was that of a thread of this process) and
 * moeSystemError (no usable network interface). Nothing has changed then. */
MOE_API moeResult_t moeCommReplace(moeComm_t comm, int32_t rank, moeUniqueId_t* id);

/* Writes this rank's latest steps to a file: for each of up to 1024 steps its call, handle, operation, when it began
 * and ended, when the first wait for another rank ended, which rank was awaited longest, tokens and bytes of a row; and
 * the failure, if there is one. moe_trace makes a trace of the files of all ranks. Steps are always recorded, unless
 * MOECOMM_RECORDER is off. docs/guide/watching.md has the fields, and says what kernels do not record.
 *   path  host text, or NULL: moecomm-JOB-rankRANK.json in config.dumpFolder. An existing file is replaced, as a whole.
 * Local, not stream-ordered: it shows steps that are under way as such, and waits for none of them. Takes at most 2
 * seconds plus the time of the file system. It works after a failure of the communicator too, and then replaces the
 * dump of that failure.
 * Any thread. Returns moeInvalidUsage (path NULL without a folder), moeSystemError (the file cannot be written),
 * moeTimeout (the GPU did not give its records in time). */
MOE_API moeResult_t moeCommDump(moeComm_t comm, const char* path);

/* The communicator's first asynchronous failure, or moeSuccess. Never blocks.
 *   error  host [1], out
 * The failure stays until moeCommDestroy. A new communicator may be made in the same process. Ranks may notice the same
 * failure up to one timeout apart, so make the new communicator's timeout longer by one timeout.
 * Any thread. Returns moeInvalidArgument (error NULL). */
MOE_API moeResult_t moeCommGetAsyncError(moeComm_t comm, moeResult_t* error);

/* How large things may be. There are no other limits. */
typedef struct moeLimits {
  size_t size;
  int32_t ranksMax;     /* of a communicator */
  int32_t topkMax;      /* experts of a token */
  int32_t expertsMax;   /* over all ranks */
  int32_t tokensMax;    /* HT, per rank and call */
  int32_t llTokensMax;  /* LL, per rank and call */
  int32_t rowAlignment; /* bytes; a row, a side payload and every row pointer is a multiple of it */
  int32_t rowBytesMax;  /* of one row */
  int32_t sideBytesMax; /* of one row's side payload */

  /* The most HT dispatches that may await moeComplete at once. As many HT combines may await it beside them. With
   * several domains only one HT combine may await it, and no other HT combine may start meanwhile. config.stagingAreas
   * limits both further. */
  int32_t outstandingMax;
  int32_t llSets; /* most LL operations outstanding at once, of handles that were made one after the other */
} moeLimits_t;
#define MOE_LIMITS_INITIALIZER \
  { sizeof(moeLimits_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* The limits of this communicator. With comm NULL: the limits of the library.
 *   limits  host [1], out
 * Any thread. Returns moeInvalidArgument. */
MOE_API moeResult_t moeGetLimits(moeComm_t comm, moeLimits_t* limits);

/* A communicator on one rank, with the values that follow from its configuration. */
typedef struct moeCommInfo {
  size_t size;
  int32_t nranks;       /* ranks of the communicator */
  int32_t rank;         /* this rank, 0..nranks - 1 */
  int32_t backend;      /* moeBackendHost or moeBackendCuda */
  int32_t device;       /* CUDA ordinal; -1 with the host backend */
  int32_t domain;       /* index of this rank's domain, 0..domainCount - 1 */
  int32_t domainCount;  /* domains of the communicator */
  int32_t domainRank;   /* this rank's index in its domain */
  int32_t domainSize;   /* ranks of each domain */
  int32_t timeoutMs;    /* in force now: see moeCommSetTimeout */
  int32_t bulkCopies;   /* 1 if the kernels use the GPU's bulk-copy engine */
  uint64_t windowBytes; /* of this rank's window, heap included */
  uint64_t heapBytes;   /* of these: for moeMemAlloc */
  /* device [1]: not 0 since a step of this rank has found that the communicator has failed, and 0 again after
   * moeCommRecover. So work behind a replayed graph learns of it in stream order. A step that another rank's failure
   * ends sets it on GPUs only. */
  const uint32_t* failed;
} moeCommInfo_t;
#define MOE_COMM_INFO_INITIALIZER \
  { sizeof(moeCommInfo_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL }
/* Describes the communicator on this rank.
 *   info  host [1], out
 * Returns moeInvalidArgument. */
MOE_API moeResult_t moeCommGetInfo(moeComm_t comm, moeCommInfo_t* info);

/* A rank's place, and the transport from this rank to it. */
typedef struct moePeerInfo {
  size_t size;
  int32_t rank;      /* the peer, 0..nranks - 1 */
  int32_t transport; /* moeTransport value in use towards this peer */
  int32_t domain;    /* index of the peer's domain */
  int32_t processId; /* the peer's process id on its host */
  int32_t device;    /* the peer's CUDA ordinal; -1 with the host backend */
  int32_t lost;      /* 1: the group goes on without it; its place is that of its last process */
  char hostName[64]; /* ends with a zero byte; a longer name is cut */
} moePeerInfo_t;
#define MOE_PEER_INFO_INITIALIZER              \
  {                                            \
    sizeof(moePeerInfo_t), 0, 0, 0, 0, 0, 0, { \
      0                                        \
    }                                          \
  }
/* Describes another rank, or this one.
 *   peer  0..nranks - 1
 *   info  host [1], out
 * Returns moeInvalidArgument. */
MOE_API moeResult_t moeCommGetPeerInfo(moeComm_t comm, int32_t peer, moePeerInfo_t* info);

/* ---- Window memory ---------------------------------------------------------------------------------------------- */

/* Takes memory of this rank's window. Peers write a dispatch's output straight into it, and read a combine's rows
 * there, which saves copies. Local, not stream-ordered. moeCommSuspend takes its contents away.
 *   bytes   out of config.heapBytes. 0: *memory is NULL
 *   memory  host [1], out: device memory, aligned to 256 bytes, valid until moeMemFree or moeCommDestroy
 * Returns moeInvalidArgument if the heap is too small; the sentence has the largest free block. */
MOE_API moeResult_t moeMemAlloc(moeComm_t comm, size_t bytes, void** memory);

/* Gives window memory back. No queued work may still use it. Local. memory NULL: does nothing.
 * Returns moeInvalidArgument for memory that moeMemAlloc of this communicator has not returned. */
MOE_API moeResult_t moeMemFree(moeComm_t comm, void* memory);

/* Chooses the communicator whose window memory moeMemPoolAlloc takes on the calling thread, until the next such call on
 * this thread.
 *   comm  NULL: none, as in a new thread
 * Any thread. Returns moeInvalidArgument, moeInvalidUsage (comm has config.allocate, whose functions a framework's
 * allocator must not call). After a failed call no communicator serves the thread. */
MOE_API moeResult_t moeMemPoolUse(moeComm_t comm);

/* moeMemAlloc for the allocator of a framework that passes no communicator: the arguments are those of
 * torch.cuda.memory.CUDAPluggableAllocator, with its ssize_t and int. Not stream-ordered.
 *   bytes   out of config.heapBytes of the communicator that serves this thread (moeMemPoolUse)
 *   device  its CUDA ordinal; with the host backend not read
 *   stream  not read: nothing that was queued uses the memory
 * Any thread, also beside calls on the communicator. Returns device memory, aligned to 256 bytes. NULL: there is no
 * such block, or no communicator serves this thread. moeGetLastError(NULL) then says why; the sentence begins with
 * "moeMemPoolAlloc: ".
 * The memory is valid until moeMemPoolFree. If the communicator is destroyed first, its whole window stays allocated
 * until the last such memory is freed. */
MOE_API void* moeMemPoolAlloc(int64_t bytes, int32_t device, moeStream_t stream);

/* Gives memory of moeMemPoolAlloc back. Like cudaFree, it first waits until everything that is queued on the memory's
 * device has ended.
 *   memory  does nothing if it is NULL or does not come from moeMemPoolAlloc of this process
 *   bytes, device, stream  not read
 * Any thread, also beside calls on the communicator, and after its moeCommDestroy. */
MOE_API void moeMemPoolFree(void* memory, int64_t bytes, int32_t device, moeStream_t stream);

/* ---- Routes ----------------------------------------------------------------------------------------------------- */

/* The shape of a handle's operations, the same on every rank. Experts are spread over the ranks in order: experts /
 * nranks each, and one more on each of the first experts % nranks ranks. */
typedef struct moeHandleConfig {
  size_t size;
  int32_t experts;         /* over all ranks, 1..expertsMax */
  int32_t topk;            /* entries per token, 1..topkMax */
  int32_t layout;          /* moeLayout value; 0: FLAT */
  int32_t mode;            /* moeMode value; 0: the library's choice, see moeDeviceCounts_t.mode */
  int32_t tokensMax;       /* most tokens of a rank; 0: the communicator's limit for the mode */
  int32_t expertAlignment; /* EXPERT_MAJOR: each expert's group starts at a multiple of this many rows; 0: 1 */
  int32_t indexType;       /* moeIndex value of topkIdx and outTopkIdx; 0: int32 */
  int32_t arrivals;        /* EXPERT_MAJOR layouts: 1: with arrival words, see moeHandleGetArrivals; 0: without */
  int32_t duplicates;      /* moeDuplicates value: how to treat an expert that a token names again. Ranks may differ */
  int32_t statistics;      /* 1: with statistics, see moeHandleGetStatistics; 0: without. Ranks may differ */
  int32_t combineWeights;  /* 1: combines may bring the weights, see moeCombineArgs_t.topkWeights; 0: the route does */
  /* Most tokens that may arrive at a rank, each counted once; 0: no limit. If there are more, the rank keeps the first
   * ones in the order of source rank and token. Entries of the other tokens at this rank count as -1: their rows are
   * not sent, combine adds nothing for them, and their gradients are 0. moeCounts_t.rowsWanted has the number without
   * the budget. A route over the budget takes two more hops, and a moeRouteDispatch of an LL handle with a budget takes
   * two kernels. */
  int32_t rowsBudget;
  /* 1: with moeCounts_t.rowsOfAllExperts, for programs that place experts; 0: without. A moeRouteDispatch of an LL
   * handle with these counts takes two kernels. */
  int32_t expertCounts;
  /* 1: only this rank's experts; 0: those of all ranks. It is for ranks that have the same tokens, such as a tensor
   * parallel group or one behind an all-gather. Entries of other ranks' experts count as unused, so combine sums the
   * rows of this rank's experts, zeros if a token has none, and the caller adds the sums of all ranks (give the biases
   * to one rank). No call of the handle reaches other ranks or waits for them: calls that are otherwise collective are
   * local, and any rank may make such handles alone. In all array shapes nranks is 1, the rank is 0, and experts is the
   * number of this rank's experts. moeIdsGlobal and firstExpert still count all ranks' experts. Equal entries of other
   * ranks' experts are no fault. Such handles have no placements. The communicator's first such handle allocates memory
   * for all of them: docs/reference/memory.md. */
  int32_t localOnly;
} moeHandleConfig_t;
#define MOE_HANDLE_CONFIG_INITIALIZER \
  { sizeof(moeHandleConfig_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Makes a handle and its memory. Local, but all ranks must make the same handles.
 *   handle  host [1], out; set on success only
 * Returns moeInvalidArgument (also if more than 2^24 - 1 rows may arrive), moeSystemError or moeCudaError (no memory),
 * moeInvalidUsage (this process has taken the place of a lost rank, and the next handle of the others is not like this
 * one: see moeCommReplace), or the communicator's failure. */
MOE_API moeResult_t moeHandleCreate(moeHandle_t* handle, moeComm_t comm, const moeHandleConfig_t* config);

/* Frees a handle. The caller has finished all work that uses it. Local. handle NULL: does nothing. */
MOE_API moeResult_t moeHandleDestroy(moeHandle_t handle);

/* Sets the most tokens of a rank in later routes of a handle, so that a small step has a small output. RANK_MAJOR has
 * tokensBound places for each rank, EXPERT_MAJOR_PADDED nranks * tokensBound for each expert, and outSourceIndex is
 * rank * tokensBound + token. At first, and with 0, the bound is the handle's tokensMax.
 *   tokensBound  0..tokensMax; the same on all ranks when they route
 * Dispatches and combines use the bound of their route; a captured route keeps the one that it was captured with.
 * Ranks that route with different bounds fail as with handles that differ: see moeRoute. Local.
 * Returns moeInvalidArgument. */
MOE_API moeResult_t moeHandleSetTokensBound(moeHandle_t handle, int32_t tokensBound);

/* The places of a model's experts, each of which may have several copies. topkIdx names logical experts. A physical
 * expert is one copy: a local expert of a rank. The library numbers physical experts by their places in the spread of
 * moeHandleConfig_t.experts, which is the number of places. A placement may leave places empty. */
typedef struct moePlacement {
  size_t size;
  int32_t logicalExperts;  /* 1..physicalExperts */
  int32_t physicalExperts; /* 1..config.experts */
  const int32_t* logical;  /* host [physicalExperts]: the logical expert of each, 0..logicalExperts - 1; each at least
                            * once */
  /* host [physicalExperts]: where each one is, at most one in a place. Both NULL: physical expert p is in place p, and
   * physicalExperts must be config.experts. */
  const int32_t* ranks;        /* 0..nranks - 1 */
  const int32_t* localExperts; /* of that rank: 0..localExperts - 1 */
} moePlacement_t;
#define MOE_PLACEMENT_INITIALIZER \
  { sizeof(moePlacement_t), 0, 0, NULL, NULL, NULL }

/* Sets the placement of later routes of a handle; it replaces an earlier one. In these routes topkIdx names logical
 * experts, 0..logicalExperts - 1, and the route takes one copy of each. It considers this rank's own copies if there
 * are any, else those of its domain if there are any, else all. It orders these n copies by their numbers, and takes
 * number (token + rank) mod n. Everything else names physical experts: counts and outputs of the route and of its
 * dispatches and combines, and moeIdsGlobal too. An entry keeps its position in topkIdx, and so do weights and
 * gradients.
 *   placement  host [1], read by this call only; NULL: none, topkIdx names physical experts
 * Local, stream-ordered, but must not be captured. If a captured route had a placement when it was captured, its
 * replays use the latest placement, or none after NULL. If it had none, its replays use none.
 * All ranks set the same placement before the same route. Ranks that route with different ones fail as with handles
 * that differ: see moeRoute. They compare 23 bits of a fingerprint. Returns moeInvalidArgument (names the field and its
 * value), moeInvalidUsage (an operation of this handle awaits moeComplete; the stream is being captured; a handle of
 * localOnly), moeCudaError, or the communicator's failure. */
MOE_API moeResult_t moeHandleSetPlacement(moeHandle_t handle, const moePlacement_t* placement, moeStream_t stream);

/* Decides which token goes to which row of which rank. Any number of dispatches and combines may then use the route.
 * Collective, stream-ordered, graph-safe.
 *   topkIdx      device [tokens][topk] int32 or int64: global expert (of a placement: logical), -1 = unused; an expert
 *                at most once per token, unless config.duplicates allows more. Read by this call only
 *   topkWeights  device [tokens][topk] float, or NULL for 1.0 everywhere. Read by this call only
 *   tokens       0..tokensMax or moeHandleSetTokensBound, or moeTokensRefused; may differ per rank and call. With 0 the
 *                pointers may be NULL
 * Returns moeInvalidArgument, moeInvalidUsage (an operation of this handle awaits moeComplete), moeCudaError, or the
 * communicator's failure. Two mistakes show only while the work runs. After a bad expert id the handle delivers nothing
 * until its next route: moeHandleGetStatus names rank, token, entry and value. If handles differ between ranks, all
 * ranks fail asynchronously with moeInvalidUsage, and the sentence names the field and two values.
 * The ranks exchange counts and row positions here, in both modes: docs/internals/protocol.md, "Route". */
MOE_API moeResult_t moeRoute(moeHandle_t handle, const void* topkIdx, const float* topkWeights, int32_t tokens,
                             moeStream_t stream);

/* The rows that the last moeRoute brings to this rank. */
typedef struct moeCounts {
  size_t size;
  int32_t rows;         /* tokens that arrive here, each once */
  int32_t layoutRows;   /* rows of the output. EXPERT_MAJOR: groups with padding; PADDED, RANK_MAJOR: all places */
  int32_t localExperts; /* experts of this rank */
  int32_t firstExpert;  /* global index of local expert 0 */
  const int32_t* rowsPerRank;   /* host [nranks]; valid until the handle's next call of this function */
  const int32_t* rowsPerExpert; /* host [localExperts], without padding; valid as long as rowsPerRank */
  /* The number of rows that would have arrived without config.rowsBudget. Without a budget it is `rows`, and
   * rowsWantedPerExpert is rowsPerExpert. */
  int32_t rowsWanted;
  int32_t reserved;
  const int32_t* rowsWantedPerExpert; /* host [localExperts]; valid as long as rowsPerRank */
  /* host [experts], on all ranks; NULL without config.expertCounts; valid as long as rowsPerRank */
  const int32_t* rowsOfAllExperts;
} moeCounts_t;
#define MOE_COUNTS_INITIALIZER \
  { sizeof(moeCounts_t), 0, 0, 0, 0, NULL, NULL, 0, 0, NULL, NULL }

/* The counts of the last moeRoute, on the host. Waits for them, at most for the timeout. Not collective. Not during
 * stream capture; after a replay of captured calls, synchronize the stream first. In LL mode on a GPU the counts stay
 * in the GPU's memory until somebody asks, and each call copies them.
 *   counts  host [1], out
 * Returns moeInvalidArgument, moeInvalidUsage (there was no moeRoute), moeTimeout, or the communicator's failure. */
MOE_API moeResult_t moeHandleGetCounts(moeHandle_t handle, moeCounts_t* counts);

/* The same counts for kernels. moeRoute writes them in stream order. The pointers are valid for the handle's life. */
typedef struct moeDeviceCounts {
  size_t size;
  const int32_t* rows; /* device [1] */
  /* device [nranks + 1]: FLAT rows from rank r are rankOffsets[r] .. rankOffsets[r + 1] - 1. */
  const int32_t* rankOffsets;
  const int32_t* rowsPerExpert; /* device [localExperts] */
  /* device [localExperts + 1]: where EXPERT_MAJOR groups start. The last entry is moeCounts_t.layoutRows. */
  const int32_t* expertOffsets;
  int32_t mode; /* moeModeHt or moeModeLl: the mode of the handle, also if the library chose it */
  int32_t reserved;
  /* device [1]: 0, or the moeResult that moeHandleGetStatus reports. If not 0, none of these rows have arrived. */
  const uint32_t* fault;
  const int32_t* rowsWanted;          /* device [1]: as in moeCounts_t */
  const int32_t* rowsWantedPerExpert; /* device [localExperts]: as in moeCounts_t */
  const int32_t* rowsOfAllExperts;    /* device [experts], on all ranks; NULL without config.expertCounts */
} moeDeviceCounts_t;
#define MOE_DEVICE_COUNTS_INITIALIZER \
  { sizeof(moeDeviceCounts_t), NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL }
/* The addresses of the counts for kernels. Local; possible before the first moeRoute.
 *   counts  host [1], out
 * Returns moeInvalidArgument. */
MOE_API moeResult_t moeHandleGetDeviceCounts(moeHandle_t handle, moeDeviceCounts_t* counts);

/* The reason why a handle delivers nothing. */
typedef struct moeHandleStatus {
  size_t size;
  int32_t result; /* moeSuccess; moeInvalidArgument; moeInvalidUsage: ranks passed different values,
                   * or moeCommRecover has voided the route */
  int32_t rank;   /* the rank with the bad argument, or one whose value differs from this rank's. HT across domains: for
                   * a rank of another domain, the rank there that reported it. -1 with moeSuccess */
  /* Names the argument, the rank and the value; empty with moeSuccess. Valid until the next moeHandleGetStatus of this
   * handle, and as long as the handle. */
  const char* sentence;
} moeHandleStatus_t;
#define MOE_HANDLE_STATUS_INITIALIZER \
  { sizeof(moeHandleStatus_t), 0, 0, NULL }

/* Reports a fault of an argument that showed only while the work ran. Never blocks. The answer covers the work that has
 * run so far: synchronize the stream first. Not collective.
 *   status  host [1], out
 * The communicator stays good, and so do its other handles. This handle keeps its first fault until its next moeRoute
 * has run. Until then its operations complete, but deliver nothing; kernels learn of it from moeDeviceCounts_t.fault.
 *  - A dispatch behaves as if no token went anywhere. It stores no row, pads what args.padding asks for, and stores
 *    zeros to outExpertOffsets, outBlockOffsets and outLayoutRange. Counters of rows do not change. Arrival words count
 *    the dispatch.
 *  - A combine sums as if no rows had arrived: biases, or zeros; gradients are zero. If only this rank has the fault,
 *    it still sums the rows of the other ranks and takes their gradients. Only its own rows are missing.
 * Besides moeRefused, these are the faults. moeRouteDispatch has those of the two calls that it stands for.
 *  - moeRoute: an expert id out of range, or twice in a token. All ranks have the fault.
 *  - moeCommRecover: the handle's route is void, on all ranks.
 *  - HT dispatch and combine: an output, a staging area, or rows that are too small, gradients that are missing, values
 *    that differ between ranks. All ranks have the fault. Across domains, outputs may hold anything, except where
 *    args.padding asks for padding.
 *  - LL dispatch: values that differ. All ranks have the fault, and outputs may hold anything, except those that a
 *    separate step fills (moeDescribe_t).
 *  - LL dispatch and combine: an output or rows that are too small, gradients that are missing. Only that rank has the
 *    fault. Its tokens still go to the others. The rows of its experts count as zeros, for itself and for the others,
 *    which deliver everything else.
 * LL combines whose values differ fail asynchronously instead: moeCommGetAsyncError.
 * Returns moeInvalidArgument. */
MOE_API moeResult_t moeHandleGetStatus(moeHandle_t handle, moeHandleStatus_t* status);

/* The layout of a dispatch: what expert ids say about the tokens that a rank will send. A token counts once for a rank
 * or domain, however many of its experts are there. Ids that are no expert's count nowhere. */
typedef struct moeDispatchLayout {
  size_t size;
  int32_t backend;    /* where all arrays lie: moeBackendHost or moeBackendCuda; there is no default */
  int32_t device;     /* with moeBackendCuda: ordinal of their GPU; -1: the current one */
  int32_t indexType;  /* moeIndex value of topkIdx; 0: int32 */
  int32_t topk;       /* entries per token, 1..moeLimits_t.topkMax */
  int32_t experts;    /* over all ranks, spread as those of a handle; nranks..moeLimits_t.expertsMax */
  int32_t nranks;     /* 1..moeLimits_t.ranksMax */
  int32_t domainSize; /* ranks of a domain, a divisor of nranks; 0: nranks */
  /* Out. NULL: not wanted. */
  int32_t* tokensPerRank;   /* [nranks] */
  int32_t* tokensPerDomain; /* [nranks / domainSize] */
  int32_t* tokensPerExpert; /* [experts] entries that name the expert */
  uint8_t* tokenToRank;     /* [tokens][nranks]: 1 if the token goes to the rank, else 0 */
} moeDispatchLayout_t;
#define MOE_DISPATCH_LAYOUT_INITIALIZER \
  { sizeof(moeDispatchLayout_t), 0, -1, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL }

/* Counts the layout of a dispatch. It takes one kernel and no communicator, and tells other ranks nothing: a route
 * checks ids and exchanges counts itself. For engines that look at these arrays before they dispatch, as DeepEP's
 * get_dispatch_layout allows.
 *   topkIdx  [tokens][topk]; NULL only without tokens
 *   tokens   0..moeLimits_t.tokensMax
 *   layout   host [1]; its arrays overlap neither each other nor topkIdx
 *   stream   of that GPU; ignored on the host, where the arrays are complete when the call returns
 * Stream-ordered, graph-safe, not collective, any thread. Returns moeInvalidArgument, moeUnsupported (there is no CUDA
 * in this build) or moeCudaError; moeGetLastError(NULL) explains. */
MOE_API moeResult_t moeGetDispatchLayout(const void* topkIdx, int32_t tokens, const moeDispatchLayout_t* layout,
                                         moeStream_t stream);

/* Words that show a kernel beside moeDispatch which experts' rows have arrived, so that expert GEMMs can begin before
 * the dispatch ends.
 * words[e] >> MOE_ARRIVAL_SHIFT is the number of the handle's dispatches that have brought all rows of local expert e
 * to the outputs, with payloads, scales and descriptions. Replays of captured dispatches count too. Words never
 * decrease. HT in one domain completes the experts in order, an eighth of them at a time. Otherwise all experts
 * complete at the end.
 * docs/internals/protocol.md, "Arrival words", says how to launch such a kernel. examples/expert_overlap.cu is one. */
typedef struct moeArrivals {
  size_t size;
  const uint64_t* words;  /* device [localExperts]; load with acquire semantics, and give waits a deadline */
  const uint32_t* failed; /* device [1]; not 0: a step of this rank has failed, and missing words will not come */
} moeArrivals_t;
#define MOE_ARRIVALS_INITIALIZER \
  { sizeof(moeArrivals_t), NULL, NULL }
/* The number of bits below the count in an arrival word. */
#define MOE_ARRIVAL_SHIFT 24

/* The handle's arrival words. The pointers are the same for the handle's life.
 *   arrivals  host [1], out
 * Any thread. Returns moeInvalidArgument, moeInvalidUsage (the handle was made without config.arrivals). */
MOE_API moeResult_t moeHandleGetArrivals(moeHandle_t handle, moeArrivals_t* arrivals);

/* Sums over all operations of a handle since its creation, updated in stream order and in replayed graphs too. They are
 * never reset: take differences. A wait counts once per operation and rank. It is the longest time for which one of
 * that rank's flags was missing in the operation. It is as exact as the backend's polls (the host backend in long
 * waits: half a millisecond). */
typedef struct moeStatistics {
  size_t size;
  const int64_t* rowsPerExpert;  /* device [localExperts]: rows that dispatches brought, without padding */
  const int64_t* rowsPerRank;    /* device [nranks]: tokens that dispatches brought from each rank */
  const int64_t* dispatchWaitNs; /* device [nranks]: time waited for each in dispatches, and in moeRoute before them */
  const int64_t* combineWaitNs;  /* device [nranks]: time waited for each in combines */
  /* device [nranks]: for each rank the dispatches and combines in which this rank waited for it over MOE_LATE_NS longer
   * than for any other rank. 0 for this rank itself. */
  const int64_t* lateSteps;
} moeStatistics_t;
#define MOE_STATISTICS_INITIALIZER \
  { sizeof(moeStatistics_t), NULL, NULL, NULL, NULL, NULL }
/* The margin, in nanoseconds, above which a step counts in lateSteps. */
#define MOE_LATE_NS 50000

/* The handle's statistics. The pointers are the same for the handle's life.
 *   statistics  host [1], out
 * Operations of a handle with statistics take one more launch.
 * Any thread. Returns moeInvalidArgument, moeInvalidUsage (the handle was made without config.statistics). */
MOE_API moeResult_t moeHandleGetStatistics(moeHandle_t handle, moeStatistics_t* statistics);

/* Window memory of an LL handle of layout RANK_MAJOR. Using it saves copies. Each array is packed for the rows of the
 * call that uses it; tokensMax is the handle's. */
typedef struct moeHandleView {
  size_t size;
  /* device [nranks][tokensMax][row bytes]: the rows that came with a dispatch whose outRows is NULL. After a cast, a
   * row has its codes, then its scale words, padded to a multiple of 16 bytes. With moeCastNvfp4 it has the scale words
   * of whole tiles of 512 elements, 32 bytes each. */
  const void* rows;
  const void* side;  /* device [nranks][tokensMax][sideBytes]: their side payload; NULL if config.sideBytesMax is 0 */
  void* combineRows; /* device [nranks][tokensMax][row bytes]: for the rows of moeCombine, which peers read there */
} moeHandleView_t;
#define MOE_HANDLE_VIEW_INITIALIZER \
  { sizeof(moeHandleView_t), NULL, NULL, NULL }

/* The addresses of that memory. The pointers are the same for the handle's life.
 *   view  host [1], out
 * The memory belongs to the caller from the end of the handle's dispatch until the beginning of its combine, and to the
 * library before and after. config.llSets LL handles of a communicator have memory of their own. A further handle
 * shares the memory that the fewest handles have. An operation of another handle that shares the memory ends the
 * caller's ownership too.
 * Returns moeInvalidArgument, moeInvalidUsage (a handle of another mode or layout). */
MOE_API moeResult_t moeHandleGetView(moeHandle_t handle, moeHandleView_t* view);

/* ---- Dispatch and combine --------------------------------------------------------------------------------------- */

/* For the structs of this section:
 *  - Arrays are device memory and stay valid until the work has run. Rows are aligned to 16 bytes, all other arrays to
 *    their elements.
 *  - "outRows" in a shape is the number of rows of the handle's layout: moeCounts_t.layoutRows.
 *  - Outputs overlap neither inputs nor each other. Overlaps that the host can see are refused. */

/* A cast of the rows on their way. moeDispatchArgs_t.rowType and hidden are those of `rows`; hidden is a multiple of
 * 128. outRows takes [outRows][hidden] codes of one byte, or [outRows][hidden / 2] bytes of two E2M1 codes: the code of
 * the even element is in the low half. */
typedef struct moeCast {
  size_t size;
  int32_t type; /* moeCast value, the same on all ranks; 0: no cast */
  /* moeScales value; ranks may differ. In these shapes words is hidden / 128; with moeCastFp8Ue8m0 hidden / 512,
   * rounded up; with moeCastNvfp4 hidden / 64.
   * ROW_MAJOR: [outRows][words].
   * TOKEN_CONTIGUOUS: [words][outRowsMax]; in RANK_MAJOR [words][nranks * tokensMax]; in EXPERT_MAJOR_PADDED
   * [localExperts][words][nranks * tokensMax].
   * 128x4: [blocks][words][512 bytes], not with fp32 scales. docs/guide/formats.md, "Blocks of 128 rows", has the
   * number of blocks and the place of each scale. */
  int32_t scaleLayout;
  int32_t flags; /* moeCastExact, moeWeightsOnInput */
  /* The scales in 32-bit words. A word is one fp32, or the bytes of 4 neighbouring blocks: the first block in the
   * lowest byte, 0 for a block that the row does not have. May be NULL if outRows is. HT: in the same kind of memory as
   * outRows. */
  void* outScales;
  /* The step reads these numbers when it casts this rank's rows, so a kernel before it on the stream may write them.
   * They must be finite, and globalScale above 0. NULL: 1. They do not travel, so ranks must agree on globalScale, and
   * on inputScale if receivers want to undo it. */
  const float* inputScale;  /* [1] elements are multiplied by it first */
  const float* globalScale; /* [1] moeCastNvfp4: such as 448 * 6 / the largest magnitude of all rows; else NULL */
} moeCast_t;
#define MOE_CAST_INITIALIZER \
  { sizeof(moeCast_t), 0, 0, 0, NULL, NULL, NULL }

/* Arrays in which a dispatch describes the arriving rows. An array that is not wanted is NULL. outRowExperts,
 * outRowsPerExpert and outLayoutRange may be filled by a separate step after the dispatch, or after moeComplete:
 * arrival words do not cover these three. */
typedef struct moeDescribe {
  size_t size;
  int32_t idKind;    /* moeIds value: how outTopkIdx and outRowExperts name experts */
  int32_t invalidId; /* in outTopkIdx and padded outRowExperts: no expert of this rank; 0: -1 */
  /* FLAT, RANK_MAJOR: [outRows][topk] the expert (idKind), or invalidId where it is not on this rank, in the handle's
   * index type. Other layouts: NULL. */
  void* outTopkIdx;
  /* FLAT, RANK_MAJOR: [outRows][topk], 0 where the expert is not on this rank. EXPERT_MAJOR*: [outRows]. */
  float* outTopkWeights;
  int32_t* outSourceIndex;   /* [outRows]: source rank * tokensMax of the handle + source token */
  int32_t* outRowExperts;    /* EXPERT_MAJOR*: [outRows] the row's expert (idKind). Others: NULL */
  int32_t* outRowsPerExpert; /* [localExperts]: rows that arrived for each expert, a copy of moeHandleGetDeviceCounts */
  int32_t* outExpertOffsets; /* EXPERT_MAJOR: [localExperts + 1], a copy of the offsets. Others: NULL */
  /* EXPERT_MAJOR with moeScales128x4, of scales or a payload: [localExperts + 1] the block at which each expert's group
   * begins, and where the last one ends. An expert may have a block more than its rows need. If expertAlignment is a
   * multiple of 128, they are the experts' offsets / 128. Others: NULL */
  int32_t* outBlockOffsets;
  /* EXPERT_MAJOR*: [localExperts][nranks]: begin << 32 | count of the rows of each source in the expert's group. begin
   * is counted from the group's first row. Others: NULL */
  int64_t* outLayoutRange;
  /* Counters of the caller, which may serve several handles. They grow like those of moeHandleGetStatistics, with or
   * without config.statistics. */
  int32_t* cumulativeRows;   /* [localExperts]: rows of each expert */
  int64_t* cumulativeWaitNs; /* [nranks]: time waited for each rank; in moeRoute only with config.statistics */
} moeDescribe_t;
#define MOE_DESCRIBE_INITIALIZER \
  { sizeof(moeDescribe_t), 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/* An array that travels beside the rows, such as scales that the caller made. It consists of 4-byte words. The
 * sender and the receiver each give strides between rows and between words: in bytes, multiples of 4. Memory is aligned
 * to 4 bytes. */
typedef struct moePayload {
  size_t size;   /* in an array of payloads, the size of the first one counts for all */
  int32_t bytes; /* per row; a multiple of 4; the same on all ranks */
  /* moeScales value: `out` has the shape that scaleLayout gives to outScales, of bytes / 4 words; or moePayloadArray */
  int32_t outLayout;
  const void* in; /* word w of token t is at in + t * inRowStride + w * inWordStride; NULL if 0 tokens are routed */
  int64_t inRowStride;   /* 0: bytes */
  int64_t inWordStride;  /* 0: 4 */
  void* out;             /* in the same kind of memory as outRows; NULL if outRows is NULL */
  int64_t outRowStride;  /* from row to row; 0: as dense as outLayout can be. With moeScales128x4: 0 */
  int64_t outWordStride; /* from word to word, such as columns whose length is a multiple of 16 bytes; 0: the same */
} moePayload_t;
#define MOE_PAYLOAD_INITIALIZER \
  { sizeof(moePayload_t), 0, 0, NULL, 0, 0, NULL, 0, 0 }

/* The arguments of moeDispatch and moeRouteDispatch. */
typedef struct moeDispatchArgs {
  size_t size;
  const void* rows; /* [tokens][hidden]; NULL if this rank routed 0 tokens */
  int32_t rowType;  /* moeRow value; 0: opaque bytes, and hidden counts bytes */
  int32_t hidden;   /* elements of a row; hidden times the element size is a multiple of 16 */
  int32_t flags;    /* moeSendOnly, moeOutputsLater; moeRefused */
  int32_t sms;      /* GPU multiprocessors for this call; 0: the communicator's setting */
  /* [outRows][hidden]. HT: peers write window memory themselves; other memory costs a local copy. LL RANK_MAJOR: NULL
   * leaves the rows where they arrived, see moeHandleGetView. */
  void* outRows;
  /* Rows that outRows can hold. If more arrive, nothing is delivered, and moeHandleGetStatus names both numbers. */
  int64_t outRowsMax;
  /* moePad bits; 0: rows for which nothing arrived are left untouched. In FLAT and EXPERT_MAJOR such rows are the
   * alignment rows, and the rows after the last one up to outRowsMax. In the other layouts they are the unused rows of
   * the layout. If a bit is set, the outputs that it fills must have room for all of them. Ranks may differ. */
  int32_t padding;
  int32_t payloadCount; /* 0..4; 0: none */
  /* host [payloadCount]. On the wire they are one side payload, word after word. Its size, rounded up to a multiple of
   * 16 bytes, is at most config.sideBytesMax and, unless it is an array, at most 16384 bytes. moeHandleView_t.side
   * holds them in this form.
   */
  const moePayload_t* payloads;
  const moeCast_t* cast;         /* host [1]; NULL: rows travel as they are */
  const moeDescribe_t* describe; /* host [1]; NULL: nothing beside rows and payloads is stored */
} moeDispatchArgs_t;
#define MOE_DISPATCH_ARGS_INITIALIZER \
  { sizeof(moeDispatchArgs_t), NULL, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, NULL, NULL }

/* Sends each token to the ranks that hold its experts, once per rank. Collective, stream-ordered, graph-safe.
 * Rows arrive in the order of source rank, then source token, on every run.
 * hidden, rowType, the type of the cast and the bytes of payloads must be the same on all ranks. If they differ,
 * nothing is delivered, and moeHandleGetStatus names the field and two values. Returns moeInvalidArgument,
 * moeInvalidUsage (no route; an operation of this handle awaits moeComplete; too many outstanding), moeCudaError, or
 * the communicator's failure. docs/internals/protocol.md, "HT dispatch" and "LL dispatch". */
MOE_API moeResult_t moeDispatch(moeHandle_t handle, const moeDispatchArgs_t* args, moeStream_t stream);

/* moeRoute and moeDispatch in one call, for layers whose expert ids change in every step. Afterwards the handle is as
 * after the two calls: the counts, further dispatches and combines use this route. All ranks make this call, or all
 * make the two calls. An LL handle takes one kernel and one hop for this one. In HT the two kernels may overlap; each
 * then has up to `sms` multiprocessors of its own. Collective, stream-ordered, graph-safe.
 *   topkIdx, topkWeights, tokens  as for moeRoute; the arrays overlap no output of args
 *   args                          as for moeDispatch. With moeSendOnly the counts for the host may come with
 *                                 moeComplete
 * All arguments are checked before anything is launched: a refused call leaves the handle's earlier route
 * as it was. Returns what moeRoute and moeDispatch return. docs/internals/protocol.md, "LL dispatch that routes". */
MOE_API moeResult_t moeRouteDispatch(moeHandle_t handle, const void* topkIdx, const float* topkWeights, int32_t tokens,
                                     const moeDispatchArgs_t* args, moeStream_t stream);

/* Words by which a kernel beside a combine, or another thread, shows which `rows` are ready. It makes the rows of a
 * block, then adds to the block's word with a release at device scope. The call reads a row when its word minus
 * `value`, as int32, is not negative. So the next call can use the same words, uncleared, with a higher value. The
 * layout must have a row per expert: EXPERT_MAJOR or EXPERT_MAJOR_PADDED. Its rows are sent (HT: prepared for peers) as
 * they become ready. Ranks may differ. Rows and words belong to the library until the call has ended; with moeSendOnly
 * until its first part has ended, or with completeSms until moeComplete has. If words do not come, the communicator
 * fails a little before its timeout, and the sentence names the expert. Limit `sms`, because the call holds its
 * multiprocessors while it waits. */
typedef struct moeReady {
  size_t size;
  /* One word per block; NULL: all rows are ready. EXPERT_MAJOR: blockRows divides expertAlignment, and row r has word r
   * / blockRows. EXPERT_MAJOR_PADDED: each local expert has places / blockRows words, rounded up, where places is
   * nranks * the route's bound of tokens. */
  const uint32_t* words;
  int32_t blockRows; /* 64 or 128; 0: a block is a local expert */
  uint32_t value;    /* a block is ready when its word has reached this */
  /* With moeSendOnly, also without words: GPU multiprocessors for moeComplete; 0: as many as for this call. A combine
   * beside a GEMM sends with few of them, and sums with many when the GEMM has ended. In LL, once all words have
   * arrived, the call leaves the rows that it has not sent yet to moeComplete. */
  int32_t completeSms;
} moeReady_t;
#define MOE_READY_INITIALIZER \
  { sizeof(moeReady_t), NULL, 0, 0, 0 }

/* Gradients of the weights, which travel with the rows of a combine: on all ranks or on none. If only some ranks have
 * the struct, they differ: see moeCombine. */
typedef struct moeGrads {
  size_t size;
  const float* weightGrads; /* in the layout of moeDescribe_t.outTopkWeights; NULL if nothing arrived here */
  float* outWeightGrads;    /* [tokens][topk], 0 for unused entries; NULL if this rank routed 0 tokens */
} moeGrads_t;
#define MOE_GRADS_INITIALIZER \
  { sizeof(moeGrads_t), NULL, NULL }

/* The arguments of moeCombine. */
typedef struct moeCombineArgs {
  size_t size;
  /* [outRows][hidden] in the layout that dispatch produced. NULL if nothing arrived here; if something did, NULL or a
   * moeMemAlloc block that is too small is a fault, see moeHandleGetStatus.
   * Peers read the rows directly if they are window memory (HT: FLAT, RANK_MAJOR) or moeHandleGetView's combineRows
   * (LL). Otherwise the library prepares rows for peers from them; HT does that in config.stagingRows, which must be
   * enough. */
  const void* rows;
  int32_t rowType; /* moeRowBf16, moeRowFp16 or moeRowFp32 */
  int32_t hidden;  /* elements of a row */
  int32_t flags;   /* moeSendOnly; moeRefused */
  int32_t sms;     /* GPU multiprocessors for this call; 0: the communicator's setting */
  /* moeWire value, the same on all ranks. Except with moeWireRow, peers read no rows of the caller: the library codes
   * them into its slots, or in HT into config.stagingRows. So `rows` may not be moeHandleGetView's combineRows. */
  int32_t wire;
  int32_t weights; /* moeWeights value; ranks may differ */
  /* [tokens][topk] of the route's topkIdx, for moeWeightsApply in a handle with config.combineWeights; NULL: the
   * weights of the route. Entries without an expert are ignored, and merged entries add up. The call reads the array;
   * with moeSendOnly its first part does, which then waits for the weights of all ranks. Such a combine first brings
   * the weights to the ranks of the experts, which takes one more hop. If weights are known at the route, it is cheaper
   * to pass them there. Layouts without a row per expert take the array and ignore it. */
  const float* topkWeights;
  void* out;                 /* [tokens][hidden]; NULL if this rank routed 0 tokens */
  const void* bias0;         /* [tokens][hidden], added to the sum; or NULL. May be `out` itself */
  const void* bias1;         /* [tokens][hidden], added after bias0; or NULL. May be `out` itself */
  int64_t* cumulativeWaitNs; /* [nranks]: as in moeDescribe_t; or NULL */
  const moeGrads_t* grads;   /* host [1]; NULL: no gradients travel */
  const moeReady_t* ready;   /* host [1]; NULL: all rows are there */
} moeCombineArgs_t;
#define MOE_COMBINE_ARGS_INITIALIZER \
  { sizeof(moeCombineArgs_t), NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/* Brings the rows back and sums them for each token. Collective, stream-ordered, graph-safe.
 * The sum is made in fp32, with separately rounded products and sums. Each rank sums over its experts in top-k order
 * and rounds to the row type. Then the ranks are summed in rank order, then the biases. With several domains, the ranks
 * of the token's own domain come first. Then LL adds each rank of the others, and HT the sum of each other domain,
 * which is rounded to the row type once more. So the result has the same bits on every run, backend and transport.
 * The bits may differ with another division of the ranks into domains and, with several domains, in the other mode. A
 * token without experts gets the biases, or zeros. hidden, rowType, wire and whether there are gradients must be the
 * same on all ranks. If they differ, HT sums nothing, and moeHandleGetStatus names the field and two values; LL fails
 * asynchronously with moeInvalidUsage. Returns what moeDispatch returns. docs/internals/protocol.md, "Combine". */
MOE_API moeResult_t moeCombine(moeHandle_t handle, const moeCombineArgs_t* args, moeStream_t stream);

/* Finishes a dispatch or combine of this handle that was started with moeSendOnly: waits for the peers and fills the
 * outputs. No GPU multiprocessor is held between the two calls. Collective, stream-ordered, graph-safe.
 * Returns moeInvalidUsage (nothing is outstanding), moeCudaError, or the communicator's failure. */
MOE_API moeResult_t moeComplete(moeHandle_t handle, moeStream_t stream);

/* Finishes a dispatch of this handle that was started with moeOutputsLater: waits on the host for the counts of the
 * route, as moeHandleGetCounts does, then on the device for the peers, and fills the outputs. Collective in the sense
 * that other ranks may wait for this one before their next dispatch; each rank has outputs of its own.
 *   args  as for the call that it finishes, with outputs; outRowsMax is at least layoutRows of the counts. The flags
 *         are those of that call, or 0. Arrays that are sent are not read
 * moeComplete in place of this call drops the rows. Returns moeInvalidArgument, moeInvalidUsage (no dispatch of this
 * handle awaits outputs; the stream is being captured), moeTimeout (the counts), moeCudaError, or the communicator's
 * failure. A call that is refused may be repeated. */
MOE_API moeResult_t moeCompleteDispatch(moeHandle_t handle, const moeDispatchArgs_t* args, moeStream_t stream);

#ifdef __cplusplus
}
#endif
#endif /* MOECOMM_H_ */
