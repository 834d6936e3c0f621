/* One MoE step in host memory. Token t of each rank goes to experts t and t + 1, with one expert per rank. Each expert
 * doubles its rows, and combine adds the two results. Run: moerun -n 4 ./minimal */
#include <moecomm.h>
#include <stdio.h>

#define CHECK(comm, call)                                      \
  if ((call) != moeSuccess) {                                  \
    fprintf(stderr, "%s: %s\n", #call, moeGetLastError(comm)); \
    return 1;                                                  \
  }

enum { kTokens = 4, kTopk = 2, kHidden = 8, kRowsMax = 1024 };

int main(void) {
  static float rows[kTokens][kHidden], arrived[kRowsMax][kHidden], sums[kTokens][kHidden];
  int32_t experts[kTokens][kTopk];
  moeComm_t comm = NULL;
  moeHandle_t handle = NULL;
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.backend = moeBackendHost;
  CHECK(NULL, moeCommInitFromEnv(&comm, &config));
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  CHECK(comm, moeCommGetInfo(comm, &info));
  for (int t = 0; t < kTokens; ++t) {
    for (int k = 0; k < kTopk; ++k) experts[t][k] = k < info.nranks ? (t + k) % info.nranks : -1;
    for (int i = 0; i < kHidden; ++i) rows[t][i] = (float)(info.rank * 100 + t);
  }

  moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
  shape.experts = info.nranks;
  shape.topk = kTopk;
  CHECK(comm, moeHandleCreate(&handle, comm, &shape));
  CHECK(comm, moeRoute(handle, experts, NULL, kTokens, NULL));

  moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
  dispatch.rows = rows;
  dispatch.rowType = moeRowFp32;
  dispatch.hidden = kHidden;
  dispatch.outRows = arrived;
  dispatch.outRowsMax = kRowsMax;
  CHECK(comm, moeDispatch(handle, &dispatch, NULL));

  moeCounts_t counts = MOE_COUNTS_INITIALIZER;
  CHECK(comm, moeHandleGetCounts(handle, &counts));
  for (int r = 0; r < counts.rows; ++r) {
    for (int i = 0; i < kHidden; ++i) arrived[r][i] *= 2;
  }

  moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
  combine.rows = arrived;
  combine.rowType = moeRowFp32;
  combine.hidden = kHidden;
  combine.out = sums;
  CHECK(comm, moeCombine(handle, &combine, NULL));

  int wrong = 0;
  const float uses = info.nranks < kTopk ? (float)info.nranks : (float)kTopk;
  for (int t = 0; t < kTokens; ++t) wrong += sums[t][0] != 2 * uses * rows[t][0] || sums[t][kHidden - 1] != sums[t][0];
  printf("rank %d: %d rows came, %d tokens are wrong\n", info.rank, counts.rows, wrong);
  CHECK(comm, moeCommDestroy(comm)); /* frees the handle too */
  return wrong != 0;
}
