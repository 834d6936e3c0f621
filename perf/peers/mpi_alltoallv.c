/* The job by MPI_Alltoallv, as one writes it without a library for it. Rows are sorted by destination rank and travel
 * in one call each way. A fresh route exchanges counts, and the experts and weights of the rows. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

typedef struct Mpi {
  int *sent, *came;                      /* [nranks]: rows to and from a rank */
  int *sentFrom, *cameAt;                /* [nranks]: where they start */
  int *bytes, *from, *cameBytes, *at;    /* [nranks]: the same in bytes, as the call takes it */
  uint16_t *out, *arrived, *done, *back; /* rows in the order in which they travel */
  uint8_t *heads, *headsArrived;         /* experts and weights */
  const uint16_t** terms;
} Mpi;

static void freeAll(void* self) {
  Mpi* mpi = self;
  void* all[] = {mpi->sent,    mpi->came,      mpi->sentFrom, mpi->cameAt,       mpi->bytes,
                 mpi->from,    mpi->cameBytes, mpi->at,       mpi->out,          mpi->done,
                 mpi->arrived, mpi->back,      mpi->heads,    mpi->headsArrived, mpi->terms};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]);
}

static void prepare(void* self, const Job* job) {
  Mpi* mpi = self;
  const size_t nranks = (size_t)job->nranks, rows = nranks * (size_t)job->tokens;
  int** lists[] = {&mpi->sent,  &mpi->came, &mpi->sentFrom,  &mpi->cameAt,
                   &mpi->bytes, &mpi->from, &mpi->cameBytes, &mpi->at};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; ++i) *lists[i] = calloc(nranks, sizeof(int));
  uint16_t** payloads[] = {&mpi->out, &mpi->arrived, &mpi->done, &mpi->back};
  for (size_t i = 0; i < 4; ++i) *payloads[i] = calloc(rows * (size_t)job->hidden, sizeof(uint16_t));
  mpi->heads = calloc(rows * (size_t)job->topk, 8);
  mpi->headsArrived = calloc(rows * (size_t)job->topk, 8);
  mpi->terms = calloc(nranks, sizeof *mpi->terms);
}

/* Exchanges rowBytes bytes of each row. */
static void exchange(Mpi* mpi, int nranks, const void* rows, const int* count, const int* begin, void* to,
                     const int* toCount, const int* toBegin, int rowBytes) {
  for (int rank = 0; rank < nranks; ++rank) {
    mpi->bytes[rank] = count[rank] * rowBytes;
    mpi->from[rank] = begin[rank] * rowBytes;
    mpi->cameBytes[rank] = toCount[rank] * rowBytes;
    mpi->at[rank] = toBegin[rank] * rowBytes;
  }
  MPI_Alltoallv(rows, mpi->bytes, mpi->from, MPI_BYTE, to, mpi->cameBytes, mpi->at, MPI_BYTE, MPI_COMM_WORLD);
}

static void route(void* self, Job* job) {
  Mpi* mpi = self;
  placeTokens(job);
  memcpy(mpi->sent, job->counts, sizeof(int) * (size_t)job->nranks);
  MPI_Alltoall(mpi->sent, 1, MPI_INT, mpi->came, 1, MPI_INT, MPI_COMM_WORLD);
  for (int rank = 1; rank < job->nranks; ++rank) {
    mpi->sentFrom[rank] = mpi->sentFrom[rank - 1] + mpi->sent[rank - 1];
    mpi->cameAt[rank] = mpi->cameAt[rank - 1] + mpi->came[rank - 1];
  }
  const size_t entries = (size_t)job->topk * 4;
  for (int token = 0; token < job->tokens; ++token) {
    for (int rank = 0; rank < job->nranks; ++rank) {
      const int place = job->places[token * job->nranks + rank];
      if (place < 0) continue;
      uint8_t* head = mpi->heads + (size_t)(mpi->sentFrom[rank] + place) * entries * 2;
      memcpy(head, job->experts_of + (size_t)token * (size_t)job->topk, entries);
      memcpy(head + entries, job->weights + (size_t)token * (size_t)job->topk, entries);
    }
  }
  exchange(mpi, job->nranks, mpi->heads, mpi->sent, mpi->sentFrom, mpi->headsArrived, mpi->came, mpi->cameAt,
           (int)entries * 2);
}

static void dispatch(void* self, Job* job) {
  Mpi* mpi = self;
  const size_t rowBytes = (size_t)job->hidden * sizeof(uint16_t);
  for (int token = 0; token < job->tokens; ++token) {
    const uint16_t* row = job->rows + (size_t)token * (size_t)job->hidden;
    for (int rank = 0; rank < job->nranks; ++rank) {
      const int place = job->places[token * job->nranks + rank];
      if (place >= 0) memcpy(mpi->out + (size_t)(mpi->sentFrom[rank] + place) * (size_t)job->hidden, row, rowBytes);
    }
  }
  exchange(mpi, job->nranks, mpi->out, mpi->sent, mpi->sentFrom, mpi->arrived, mpi->came, mpi->cameAt, (int)rowBytes);
}

static void expert(void* self, Job* job) {
  Mpi* mpi = self;
  const int last = job->nranks - 1;
  doubleRows(mpi->done, mpi->arrived, (size_t)(mpi->cameAt[last] + mpi->came[last]) * (size_t)job->hidden);
}

static void combine(void* self, Job* job) {
  Mpi* mpi = self;
  exchange(mpi, job->nranks, mpi->done, mpi->came, mpi->cameAt, mpi->back, mpi->sent, mpi->sentFrom,
           job->hidden * (int)sizeof(uint16_t));
  for (int token = 0; token < job->tokens; ++token) {
    int terms = 0;
    for (int rank = 0; rank < job->nranks; ++rank) {
      const int place = job->places[token * job->nranks + rank];
      if (place >= 0) mpi->terms[terms++] = mpi->back + (size_t)(mpi->sentFrom[rank] + place) * (size_t)job->hidden;
    }
    sumRows(job->sums + (size_t)token * (size_t)job->hidden, mpi->terms, terms, job->hidden);
  }
}

static void slowest(void* self, double* times, int n) {
  (void)self;
  MPI_Allreduce(MPI_IN_PLACE, times, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, nranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  Mpi mpi;
  memset(&mpi, 0, sizeof mpi);
  const Way way = {"mpi", &mpi, prepare, route, dispatch, combine, expert, slowest, freeAll};
  Plan plan;
  int status = 2;
  if (readPlan(argc, argv, nranks, &plan)) {
    status = measureWay(&plan, rank, nranks, &way);
  } else if (rank == 0) {
    fprintf(stderr, "Usage: mpirun -np RANKS %s %s\n", argv[0], kPlanUsage);
  }
  MPI_Finalize();
  return status;
}
