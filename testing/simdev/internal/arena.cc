// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/arena.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "testing/simdev/internal/memory.h"

namespace lockstep::simdev::internal {
namespace {

// Written once, before any device is used.
char* device_memory = nullptr;
char* kernel_memory = nullptr;
size_t total_bytes = 0;
unsigned shift = 0;

void* map(void* at, size_t bytes, int access, int flags, int file) {
  void* const mapped = mmap(at, bytes, access, flags, file, 0);
  TORCH_CHECK(mapped != MAP_FAILED, "[simdev] expected to map ", bytes,
              " bytes of address space, got: ", std::strerror(errno));
  return mapped;
}

int device_at(const void* address, const char* base) {
  const size_t offset = static_cast<size_t>(static_cast<const char*>(address) - base);
  return offset < total_bytes ? static_cast<int>(offset >> shift) : -1;
}

}  // namespace

void map_arenas(int devices, size_t bytes) {
  shift = 20;
  while ((size_t{1} << shift) < bytes) {
    ++shift;
  }
  total_bytes = static_cast<size_t>(devices) << shift;
  const int file = memfd_create("simdev", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(total_bytes)) == 0,
              "[simdev] expected a memory file of ", total_bytes,
              " bytes, got: ", std::strerror(errno));
  auto* const reserved = static_cast<char*>(
      map(nullptr, 2 * total_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1));
  constexpr int kShared = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  map(reserved, total_bytes, PROT_NONE, kShared, file);
  map(reserved + total_bytes, total_bytes, PROT_READ | PROT_WRITE, kShared, file);
  close(file);
  madvise(reserved, 2 * total_bytes, MADV_DONTFORK);
  madvise(reserved, 2 * total_bytes, MADV_DONTDUMP);
  device_memory = reserved;
  kernel_memory = reserved + total_bytes;
}

size_t arena_bytes() { return size_t{1} << shift; }
char* kernel_base(int device) { return kernel_memory + (static_cast<size_t>(device) << shift); }
char* device_base(int device) { return device_memory + (static_cast<size_t>(device) << shift); }

void discard_pages(int device, size_t offset, size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + bytes) / page * page;
  if (begin < end) {
    madvise(kernel_base(device) + begin, end - begin, MADV_REMOVE);
  }
}

// Both aliases of all devices lie one constant apart.
void* kernel_address(const void* device_address, int /*device*/) {
  return device_address == nullptr
             ? nullptr
             : const_cast<char*>(static_cast<const char*>(device_address)) + total_bytes;
}

void* device_address(const void* kernel_address, int /*device*/) {
  return kernel_address == nullptr
             ? nullptr
             : const_cast<char*>(static_cast<const char*>(kernel_address)) - total_bytes;
}

int device_of_device_address(const void* address) { return device_at(address, device_memory); }
int device_of_kernel_address(const void* address) { return device_at(address, kernel_memory); }

}  // namespace lockstep::simdev::internal
