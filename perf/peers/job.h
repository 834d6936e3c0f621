/* The job that is measured in several ways beside the library: what a route, an HT dispatch (FLAT) and a combine do. A
 * token's row goes once to each rank that has one of its experts, the rows come back, and are summed for the token.
 * Rows are bf16, sums fp32. The same text for every way, so that only the exchange differs. */
#ifndef MOECOMM_PERF_PEERS_JOB_H
#define MOECOMM_PERF_PEERS_JOB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of one rank. Rows that go to a rank are numbered in token order. */
typedef struct Job {
  int rank, nranks, tokens, hidden, topk, experts;
  int32_t* experts_of; /* [tokens][topk] */
  float* weights;      /* [tokens][topk] */
  uint16_t* rows;      /* [tokens][hidden] */
  uint16_t* sums;      /* [tokens][hidden] */
  int* counts;         /* [nranks]: rows that go there */
  int* places;         /* [tokens][nranks]: the number among the rows that go there, or -1 */
} Job;

/* One way to do it. `slowest` replaces each of n times by the largest of all ranks. */
typedef struct Way {
  const char* name;
  void* self;
  void (*prepare)(void* self, const Job* job);
  void (*route)(void* self, Job* job);
  void (*dispatch)(void* self, Job* job);
  void (*combine)(void* self, Job* job);
  void (*expert)(void* self, Job* job); /* every row that has arrived becomes twice as large, somewhere else */
  void (*slowest)(void* self, double* times, int n);
  void (*finish)(void* self);
} Way;

/* What every way begins a route with: `counts` and `places`. */
void placeTokens(Job* job);
/* out = the rows' sum, in their order, rounded once. */
void sumRows(uint16_t* out, const uint16_t* const* rows, int terms, int n);
void doubleRows(uint16_t* out, const uint16_t* rows, size_t n);

enum { kCasesMax = 32 };

typedef struct Plan {
  int hidden, topk, experts, iters, cases;
  int tokens[kCasesMax];
} Plan;

/* From --hidden, --topk, --experts, --iters and the numbers of tokens in the arguments. 0 if they are wrong. */
int readPlan(int argc, char** argv, int nranks, Plan* plan);
extern const char* const kPlanUsage;

/* Verifies and measures each case, and prints one line of JSON for each on rank 0. Returns the exit status: 1 if a sum
 * was wrong. */
int measureWay(const Plan* plan, int rank, int nranks, const Way* way);

#ifdef __cplusplus
}
#endif
#endif
