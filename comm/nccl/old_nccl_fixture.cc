// SPDX-License-Identifier: Apache-2.0
// A library with all of NCCL's names that says it is version 2.27.7, for nccl_api_test.

#define LOCKSTEP_NOTHING(name) \
  extern "C" int name() { return 0; }

LOCKSTEP_NOTHING(ncclGetUniqueId)
LOCKSTEP_NOTHING(ncclCommInitAll)
LOCKSTEP_NOTHING(ncclCommInitRankConfig)
LOCKSTEP_NOTHING(ncclCommFinalize)
LOCKSTEP_NOTHING(ncclCommDestroy)
LOCKSTEP_NOTHING(ncclCommAbort)
LOCKSTEP_NOTHING(ncclCommGetAsyncError)
LOCKSTEP_NOTHING(ncclCommCount)
LOCKSTEP_NOTHING(ncclCommCuDevice)
LOCKSTEP_NOTHING(ncclCommUserRank)
LOCKSTEP_NOTHING(ncclRedOpCreatePreMulSum)
LOCKSTEP_NOTHING(ncclRedOpDestroy)
LOCKSTEP_NOTHING(ncclAllReduce)
LOCKSTEP_NOTHING(ncclReduce)
LOCKSTEP_NOTHING(ncclBroadcast)
LOCKSTEP_NOTHING(ncclAllGather)
LOCKSTEP_NOTHING(ncclReduceScatter)
LOCKSTEP_NOTHING(ncclGroupStart)
LOCKSTEP_NOTHING(ncclGroupEnd)

extern "C" const char* ncclGetErrorString(int) { return ""; }
extern "C" const char* ncclGetLastError(void*) { return ""; }
extern "C" int ncclGetVersion(int* version) {
  *version = 22707;
  return 0;
}
