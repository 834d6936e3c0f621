/* The job that is measured in several ways beside the library: a route, an HT dispatch (FLAT) and a combine. A token's
 * row goes once to each rank that has one of its experts. The rows come back and are summed for the token. Rows are
 * bf16, sums fp32. All ways share this text, so that only the exchange differs. */
#ifndef MOECOMM_PERF_PEERS_JOB_H
#define MOECOMM_PERF_PEERS_JOB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One rank's data. Rows to a rank are numbered in token order. */
typedef struct Job {
  int rank, nranks, tokens, hidden, topk, experts;
  int32_t* experts_of; /* [tokens][topk] */
  float* weights;      /* [tokens][topk] */
  uint16_t* rows;      /* [tokens][hidden] */
  uint16_t* sums;      /* [tokens][hidden] */
  int* counts;         /* [nranks]: rows that go there */
  int* places;         /* [tokens][nranks]: number within the rows to that rank, or -1 */
} Job;

/* One way to do the job. `slowest` replaces each of n times by the maximum over all ranks. */
typedef struct Way {
  const char* name;
  void* self;
  void (*prepare)(void* self, const Job* job);
  void (*route)(void* self, Job* job);
  void (*dispatch)(void* self, Job* job);
  void (*combine)(void* self, Job* job);
  void (*expert)(void* self, Job* job); /* doubles every arrived row, into another buffer */
  void (*slowest)(void* self, double* times, int n);
  void (*finish)(void* self);
} Way;

/* The start of every way's route: fills `counts` and `places`. */
void placeTokens(Job* job);
/* out = the sum of the rows in their order, rounded once. */
void sumRows(uint16_t* out, const uint16_t* const* rows, int terms, int n);
void doubleRows(uint16_t* out, const uint16_t* rows, size_t n);

enum { kCasesMax = 32 };

typedef struct Plan {
  int hidden, topk, experts, iters, cases;
  int tokens[kCasesMax];
} Plan;

/* Parses --hidden, --topk, --experts, --iters and the numbers of tokens. Returns 0 if the arguments are wrong. */
int readPlan(int argc, char** argv, int nranks, Plan* plan);
extern const char* const kPlanUsage;

/* Verifies and measures each case, and prints one line of JSON for each on rank 0. Returns the exit status, which is 1
 * if a sum was wrong. */
int measureWay(const Plan* plan, int rank, int nranks, const Way* way);

#ifdef __cplusplus
}
#endif
#endif
