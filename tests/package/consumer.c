/* A C99 program that uses the installed library. It makes a group of one rank and leaves it. */
#include <moecomm.h>
#include <stdio.h>
#include <string.h>

static int check(moeResult_t result, const char* call) {
  if (result == moeSuccess) return 0;
  fprintf(stderr, "%s: %s: %s\n", call, moeGetErrorString(result), moeGetLastError(NULL));
  return 1;
}

int main(void) {
  int32_t version = 0;
  moeUniqueId_t id;
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  moeComm_t comm = NULL;
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;

  if (check(moeGetVersion(&version), "moeGetVersion")) return 1;
  if (version != MOE_VERSION_CODE) {
    fprintf(stderr, "the library is version %d, the header %d\n", (int)version, MOE_VERSION_CODE);
    return 1;
  }
  if (strlen(moeGetErrorString(moeTimeout)) == 0) return 1;

  config.backend = moeBackendHost;
  config.tokensMax = 64;
  if (check(moeGetUniqueId(&id), "moeGetUniqueId")) return 1;
  if (check(moeCommInit(&comm, 1, 0, &id, &config), "moeCommInit")) return 1;
  if (check(moeCommGetInfo(comm, &info), "moeCommGetInfo")) return 1;
  if (info.nranks != 1 || info.rank != 0 || info.backend != moeBackendHost) return 1;
  return check(moeCommDestroy(comm), "moeCommDestroy");
}
