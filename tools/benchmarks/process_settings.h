// SPDX-License-Identifier: Apache-2.0
// process_settings: puts the process into the state that every side of a comparison runs in.
#pragma once

#include <string>

namespace lockstep::benchmarks {

// Must be called before any thread starts:
// - Denormals are flushed to zero, on this thread and, as threads inherit it, on all later ones.
//   Small random networks produce denormals, which are up to a hundred times slower to add.
// - glibc keeps freed memory: by default a worker's arena returns the buffers of each step to the
//   system and faults them in again, thousands of pages a step, which would hide all else. Another
//   allocator is left as it is, and describe_allocator() says so.
// - One thread inside operators, unless a side asks for more.
void set_up_process();

// Flushes denormals on the calling thread only, for threads that others have started.
void flush_denormals_on_this_thread();

// What the allocator is and how it was set, in one line.
std::string describe_allocator();

}  // namespace lockstep::benchmarks
