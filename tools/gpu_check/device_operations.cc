// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/device_operations.h"

#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstddef>
#include <exception>
#include <vector>

namespace lockstep::gpu_check {
namespace {

constexpr int kCaptureModeRelaxed = 2;  // cudaStreamCaptureModeRelaxed
constexpr int kNodeTypeKernel = 0;      // cudaGraphNodeTypeKernel
constexpr int kNodeTypeMemcpy = 1;      // cudaGraphNodeTypeMemcpy

// Functions of the CUDA runtime that LibTorch has loaded, by their C types. Null where it has none.
struct Runtime {
  int (*begin_capture)(void* stream, int mode) = nullptr;
  int (*end_capture)(void* stream, void** graph) = nullptr;
  int (*get_nodes)(void* graph, void** nodes, size_t* count) = nullptr;
  int (*get_node_type)(void* node, int* type) = nullptr;
  int (*destroy_graph)(void* graph) = nullptr;
  int (*get_last_error)() = nullptr;  // and forgets it
  const char* (*error_text)(int error) = nullptr;
};

template <class Function>
void find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  TORCH_CHECK(function != nullptr, "the CUDA runtime has no ", name);
}

Runtime find_runtime() {
  Runtime runtime;
  find("cudaStreamBeginCapture", runtime.begin_capture);
  find("cudaStreamEndCapture", runtime.end_capture);
  find("cudaGraphGetNodes", runtime.get_nodes);
  find("cudaGraphNodeGetType", runtime.get_node_type);
  find("cudaGraphDestroy", runtime.destroy_graph);
  find("cudaGetLastError", runtime.get_last_error);
  find("cudaGetErrorString", runtime.error_text);
  return runtime;
}

void check(const Runtime& runtime, const char* call, int error) {
  if (error != 0) {
    runtime.get_last_error();
    TORCH_CHECK(false, call, ": ", runtime.error_text(error));
  }
}

// Ends the recording whatever happens in it: a stream that records can do nothing else.
void* record(const Runtime& runtime, void* stream, const std::function<void()>& work) {
  check(runtime, "cudaStreamBeginCapture", runtime.begin_capture(stream, kCaptureModeRelaxed));
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  void* graph = nullptr;
  const int error = runtime.end_capture(stream, &graph);
  if (failure != nullptr) {
    runtime.get_last_error();
    std::rethrow_exception(failure);
  }
  check(runtime, "cudaStreamEndCapture", error);
  return graph;
}

DeviceOperations count_nodes(const Runtime& runtime, void* graph) {
  size_t count = 0;
  check(runtime, "cudaGraphGetNodes", runtime.get_nodes(graph, nullptr, &count));
  std::vector<void*> nodes(count);
  if (count > 0) {
    check(runtime, "cudaGraphGetNodes", runtime.get_nodes(graph, nodes.data(), &count));
  }
  DeviceOperations operations;
  for (void* const node : nodes) {
    int type = -1;
    check(runtime, "cudaGraphNodeGetType", runtime.get_node_type(node, &type));
    int64_t& number = type == kNodeTypeKernel   ? operations.kernels
                      : type == kNodeTypeMemcpy ? operations.copies
                                                : operations.others;
    ++number;
  }
  return operations;
}

}  // namespace

std::optional<DeviceOperations> count_device_operations(c10::Device device,
                                                        const std::function<void()>& work,
                                                        std::string* reason) {
  if (!device.is_cuda()) {
    *reason = "not a CUDA device: " + device.str();
    return std::nullopt;
  }
  try {
    const Runtime runtime = find_runtime();
    const c10::impl::VirtualGuardImpl guard(device.type());
    const c10::Stream stream = guard.getNewStream(device);
    const c10::StreamGuard current(stream);
    for (int warmup = 0; warmup < 3; ++warmup) {
      work();
    }
    guard.synchronizeDevice(device.index());
    void* const graph = record(runtime, stream.native_handle(), work);
    const DeviceOperations operations = count_nodes(runtime, graph);
    runtime.destroy_graph(graph);
    return operations;
  } catch (const c10::Error& error) {
    *reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    *reason = error.what();
  }
  return std::nullopt;
}

}  // namespace lockstep::gpu_check
