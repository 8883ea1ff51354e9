// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/devices.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace fashion_mnist {
namespace {

constexpr size_t kMaxIndexDigits = 2;

[[noreturn]] void fail(const std::string& text, const std::string& what) {
  throw std::runtime_error("--devices=" + text + ": " + what);
}

// "cpu" and "cuda:N"; c10::Device's own parser also takes devices this program has no use for.
std::optional<c10::Device> parse_one(const std::string& name) {
  if (name == "cpu") return c10::Device(c10::kCPU);
  const std::string prefix = "cuda:";
  if (name.compare(0, prefix.size(), prefix) != 0) return std::nullopt;
  const std::string digits = name.substr(prefix.size());
  if (digits.empty() || digits.size() > kMaxIndexDigits ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(std::stoi(digits)));
}

std::vector<c10::Device> default_devices(int64_t num_cuda_devices) {
  std::vector<c10::Device> devices;
  for (int64_t i = 0; i < num_cuda_devices; ++i) {
    devices.emplace_back(c10::kCUDA, static_cast<c10::DeviceIndex>(i));
  }
  if (devices.empty()) devices = {c10::Device(c10::kCPU), c10::Device(c10::kCPU)};
  return devices;
}

}  // namespace

std::vector<c10::Device> parse_devices(const std::string& text, int64_t num_cuda_devices) {
  if (text.empty()) return default_devices(num_cuda_devices);
  std::vector<c10::Device> devices;
  std::istringstream names(text + ",");
  for (std::string name; std::getline(names, name, ',');) {
    const auto device = parse_one(name);
    if (!device.has_value()) {
      fail(text, "'" + name + "' is not a device, expected cpu or cuda:N, separated by commas");
    }
    if (device->is_cuda() && device->index() >= num_cuda_devices) {
      fail(text, device->str() + " is not there, this machine has " +
                     std::to_string(num_cuda_devices) + " CUDA devices");
    }
    if (device->is_cuda() && std::count(devices.begin(), devices.end(), *device) > 0) {
      fail(text, device->str() + " is named twice");
    }
    if (!devices.empty() && devices.front().type() != device->type()) {
      fail(text, "mixes CPU and CUDA devices");
    }
    devices.push_back(*device);
  }
  return devices;
}

std::string device_names(const std::vector<c10::Device>& devices) {
  std::string text;
  for (const c10::Device& device : devices) text += (text.empty() ? "" : ",") + device.str();
  return text;
}

}  // namespace fashion_mnist
