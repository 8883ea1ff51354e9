// SPDX-License-Identifier: Apache-2.0
// Reports that are neither ours nor real. The sanitizers ask for these functions at start, so that
// no file has to lie beside a test.

extern "C" {

__attribute__((visibility("default"))) const char* __tsan_default_suppressions();
__attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return
      // absl::Mutex hands a thread's identity, fresh from mmap, to the thread that wakes it, over a
      // futex word that the sanitizer doesn't take as an order.
      "race:DoAllocWithArena\n"
      "race:absl::*::synchronization_internal::Waiter::*\n"
      // LibTorch marks a node that is somebody's next edge, each time anew and from any thread that
      // builds a graph on it, by writing the same value to a plain bool.
      "race:torch::autograd::Node::topological_nr\n"
      // OpenMP is not instrumented, so that its barriers, which order LibTorch's parallel_for, are not
      // seen where a file of ours is compiled with it: the stand-in for LibTorch's data_parallel.
      "race:invoke_parallel\n"
      // LibTorch's libraries are not instrumented, so that the count of references which orders the
      // last use of an accumulator before its end is not seen.
      "race:torch::autograd::impl::grad_accumulator\n";
}

__attribute__((visibility("default"))) const char* __lsan_default_suppressions();
__attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  // NCCL 2.28.9 loses 160 bytes at the end of each outermost group without a call.
  return "leak:libnccl.so\n";
}

}  // extern "C"
