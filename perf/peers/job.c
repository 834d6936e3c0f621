#define _GNU_SOURCE
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Uses the widest vectors of the processor, as the library's sums do. Not with sanitizers, which start after the code
 * that chooses the variant. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define WIDEST_VECTORS __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define WIDEST_VECTORS
#endif

enum { kTile = 512, kWarmup = 5 };

const char* const kPlanUsage =
    "[--hidden H] [--topk K] [--experts E] [--iters N] TOKENS...\n"
    "Numbers from 1 to 1048576; E is a multiple of the number of ranks, and at least K.";

static void* zeroed(size_t bytes) {
  void* memory = calloc(1, bytes == 0 ? 1 : bytes);
  if (memory == NULL) {
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    exit(1);
  }
  return memory;
}

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static uint32_t draw(uint64_t* state) {
  *state = *state * 6364136223846793005U + 1442695040888963407U;
  return (uint32_t)(*state >> 33);
}

static float toFloat(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

static uint16_t fromFloat(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return (uint16_t)((word + 0x7fffU + (word >> 16 & 1U)) >> 16);
}

WIDEST_VECTORS
void sumRows(uint16_t* out, const uint16_t* const* rows, int terms, int n) {
  float sum[kTile];
  for (int begin = 0; begin < n; begin += kTile) {
    const int count = n - begin < kTile ? n - begin : kTile;
    for (int i = 0; i < count; ++i) sum[i] = 0.0F;
    for (int term = 0; term < terms; ++term) {
      const uint16_t* from = rows[term] + begin;
      for (int i = 0; i < count; ++i) sum[i] += toFloat(from[i]);
    }
    for (int i = 0; i < count; ++i) out[begin + i] = fromFloat(sum[i]);
  }
}

WIDEST_VECTORS
void doubleRows(uint16_t* out, const uint16_t* rows, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = fromFloat(2.0F * toFloat(rows[i]));
}

void placeTokens(Job* job) {
  const int perRank = job->experts / job->nranks;
  memset(job->counts, 0, sizeof(int) * (size_t)job->nranks);
  for (int token = 0; token < job->tokens; ++token) {
    int* places = job->places + (size_t)token * (size_t)job->nranks;
    for (int rank = 0; rank < job->nranks; ++rank) places[rank] = -1;
    for (int k = 0; k < job->topk; ++k) {
      const int to = job->experts_of[token * job->topk + k] / perRank;
      if (places[to] < 0) places[to] = job->counts[to]++;
    }
  }
}

static Job makeJob(const Plan* plan, int rank, int nranks, int tokens) {
  Job job = {rank, nranks, tokens, plan->hidden, plan->topk, plan->experts, NULL, NULL, NULL, NULL, NULL, NULL};
  const size_t entries = (size_t)tokens * (size_t)plan->topk, elements = (size_t)tokens * (size_t)plan->hidden;
  job.experts_of = zeroed(entries * sizeof(int32_t));
  job.weights = zeroed(entries * sizeof(float));
  job.rows = zeroed(elements * sizeof(uint16_t));
  job.sums = zeroed(elements * sizeof(uint16_t));
  job.counts = zeroed((size_t)nranks * sizeof(int));
  job.places = zeroed((size_t)tokens * (size_t)nranks * sizeof(int));
  uint64_t state = (uint64_t)rank * 1000003U + (uint64_t)tokens;
  for (int token = 0; token < tokens; ++token) {
    int32_t* chosen = job.experts_of + (size_t)token * (size_t)plan->topk;
    for (int k = 0; k < plan->topk; ++k) {
      int again = 1;
      while (again) {
        chosen[k] = (int32_t)(draw(&state) % (uint32_t)plan->experts);
        again = 0;
        for (int before = 0; before < k; ++before) again |= chosen[before] == chosen[k];
      }
    }
  }
  return job;
}

static void freeJob(Job* job) {
  free(job->experts_of);
  free(job->weights);
  free(job->rows);
  free(job->sums);
  free(job->counts);
  free(job->places);
}

/* Small whole numbers, new ones in every iteration. Their sums are exact. */
static float elementOf(const Job* job, int iteration, int token, int column) {
  return (float)((job->rank * 5 + iteration * 3 + token * 7 + column) % 16);
}

static void fillRows(Job* job, int iteration) {
  for (int token = 0; token < job->tokens; ++token) {
    uint16_t* row = job->rows + (size_t)token * (size_t)job->hidden;
    for (int i = 0; i < job->hidden; ++i) row[i] = fromFloat(elementOf(job, iteration, token, i));
  }
}

static long wrongSums(const Job* job, int iteration) {
  long wrong = 0;
  for (int token = 0; token < job->tokens; ++token) {
    int ranks = 0;
    for (int rank = 0; rank < job->nranks; ++rank) ranks += job->places[token * job->nranks + rank] >= 0;
    const uint16_t* sum = job->sums + (size_t)token * (size_t)job->hidden;
    for (int i = 0; i < job->hidden; ++i) {
      wrong += toFloat(sum[i]) != 2.0F * (float)ranks * elementOf(job, iteration, token, i);
    }
  }
  return wrong;
}

static int byValue(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

typedef struct Summary {
  double min, median;
} Summary;

static Summary summarize(const Way* way, double* times, int n) {
  way->slowest(way->self, times, n);
  qsort(times, (size_t)n, sizeof(double), byValue);
  return (Summary){times[0], times[n / 2]};
}

static double verify(const Way* way, Job* job, int iters) {
  double wrong = 0;
  for (int i = 0; i < iters; ++i) {
    fillRows(job, i);
    memset(job->sums, 0xff, sizeof(uint16_t) * (size_t)job->tokens * (size_t)job->hidden);
    way->route(way->self, job);
    way->dispatch(way->self, job);
    way->expert(way->self, job);
    way->combine(way->self, job);
    wrong += (double)wrongSums(job, i);
  }
  way->slowest(way->self, &wrong, 1);
  return wrong;
}

/* Measures as moe_perf does: dispatch and combine, each behind a step of another kind. Then pairs, and pairs with a
 * fresh route. */
static long measureCase(const Way* way, Job* job, int iters) {
  const double wrong = verify(way, job, iters);
  double* times = zeroed(sizeof(double) * 4 * (size_t)iters);
  double *dispatch = times, *combine = times + iters, *pair = times + 2 * iters, *fresh = times + 3 * iters;
  for (int i = -kWarmup; i < iters; ++i) {
    const int at = i < 0 ? 0 : i;
    way->route(way->self, job);
    const double t0 = microseconds();
    way->dispatch(way->self, job);
    const double t1 = microseconds();
    way->combine(way->self, job);
    dispatch[at] = t1 - t0;
    combine[at] = microseconds() - t1;
  }
  for (int i = -kWarmup; i < iters; ++i) {
    const int at = i < 0 ? 0 : i;
    const double t0 = microseconds();
    way->dispatch(way->self, job);
    way->combine(way->self, job);
    const double t1 = microseconds();
    way->route(way->self, job);
    way->dispatch(way->self, job);
    way->combine(way->self, job);
    pair[at] = t1 - t0;
    fresh[at] = microseconds() - t1;
  }
  static const char* const names[] = {"dispatch", "combine", "pair", "fresh"};
  Summary of[4];
  for (int i = 0; i < 4; ++i) of[i] = summarize(way, times + i * iters, iters);
  if (job->rank == 0) {
    printf("{\"way\": \"%s\", \"nranks\": %d, \"tokens\": %d, \"wrong\": %.0f", way->name, job->nranks, job->tokens,
           wrong);
    for (int i = 0; i < 4; ++i)
      printf(", \"%s\": {\"min\": %.2f, \"median\": %.2f}", names[i], of[i].min, of[i].median);
    printf("}\n");
    fflush(stdout);
  }
  free(times);
  return (long)wrong;
}

int readPlan(int argc, char** argv, int nranks, Plan* plan) {
  *plan = (Plan){1024, 4, 32, 20, 0, {0}};
  for (int i = 1; i < argc; ++i) {
    int* option = strcmp(argv[i], "--hidden") == 0    ? &plan->hidden
                  : strcmp(argv[i], "--topk") == 0    ? &plan->topk
                  : strcmp(argv[i], "--experts") == 0 ? &plan->experts
                  : strcmp(argv[i], "--iters") == 0   ? &plan->iters
                                                      : NULL;
    const char* text = option == NULL ? argv[i] : i + 1 < argc ? argv[++i] : "";
    if (option == NULL && plan->cases < kCasesMax) option = &plan->tokens[plan->cases++];
    char* end = NULL;
    const long value = strtol(text, &end, 10);
    if (option == NULL || end == text || *end != '\0' || value < 1 || value > 1 << 20) return 0;
    *option = (int)value;
  }
  return plan->cases > 0 && plan->experts % nranks == 0 && plan->topk <= plan->experts;
}

int measureWay(const Plan* plan, int rank, int nranks, const Way* way) {
  long wrong = 0;
  for (int i = 0; i < plan->cases; ++i) {
    Job job = makeJob(plan, rank, nranks, plan->tokens[i]);
    way->prepare(way->self, &job);
    wrong += measureCase(way, &job, plan->iters);
    way->finish(way->self);
    freeJob(&job);
  }
  return wrong == 0 ? 0 : 1;
}
