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
      "race:absl::*::synchronization_internal::Waiter::*\n";
}

__attribute__((visibility("default"))) const char* __lsan_default_suppressions();
__attribute__((visibility("default"))) const char* __lsan_default_suppressions() { return ""; }

}  // extern "C"
