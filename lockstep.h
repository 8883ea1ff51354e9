// SPDX-License-Identifier: Apache-2.0
// lockstep.h: everything a training program needs, in one include.
// Compiling takes as long as the largest piece; whoever wants one piece includes its header and
// depends on its target (README.md lists both).
#pragma once

#include "autograd_fns/broadcast.h"
#include "autograd_fns/gather.h"
#include "autograd_fns/reduce_add_coalesced.h"
#include "autograd_fns/scatter.h"
#include "comm/all_gather.h"
#include "comm/all_reduce.h"
#include "comm/broadcast.h"
#include "comm/copy_collectives.h"
#include "comm/device_collectives.h"
#include "comm/errors.h"
#include "comm/gather.h"
#include "comm/nccl_collectives.h"
#include "comm/reduce_add.h"
#include "comm/reduce_add_coalesced.h"
#include "comm/reduce_scatter.h"
#include "comm/scatter.h"
#include "parallel/arguments.h"
#include "parallel/data_parallel.h"
#include "parallel/device_policy.h"
#include "parallel/parallel_apply.h"
#include "parallel/worker_pool.h"
#include "replicate/parameter_containers.h"
#include "replicate/replica_set.h"
#include "replicate/replicatable.h"
#include "replicate/replicate.h"
