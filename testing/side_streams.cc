// SPDX-License-Identifier: Apache-2.0
#include "testing/side_streams.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <unordered_set>

#include "comm/current_streams.h"
#include "testing/simdev/counters.h"

namespace lockstep::testing {

std::vector<DeviceSet> device_sets_with_streams() {
  std::vector<DeviceSet> with_streams;
  for (const DeviceSet& set : all_device_sets()) {
    // A device has one current stream, however often a list names it.
    const std::unordered_set<c10::Device> distinct(set.devices.begin(), set.devices.end());
    if (!set.devices[0].is_cpu() && distinct.size() == set.devices.size()) {
      with_streams.push_back(set);
    }
  }
  return with_streams;
}

std::vector<c10::Stream> side_streams(c10::ArrayRef<c10::Device> devices) {
  std::vector<c10::Stream> sides;
  for (const c10::Device device : devices) {
    sides.push_back(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device));
  }
  order(comm::current_streams(devices), sides);
  return sides;
}

void order(c10::ArrayRef<c10::Stream> earlier, c10::ArrayRef<c10::Stream> later) {
  for (size_t i = 0; i < earlier.size(); ++i) {
    c10::Event event(earlier[i].device_type());
    event.record(earlier[i]);
    event.block(later[i]);
  }
}

int64_t host_waits(c10::ArrayRef<c10::Device> devices) {
  int64_t waits = 0;
  for (const c10::Device device : devices) {
    waits += simdev::counters(device.index()).host_syncs;
  }
  return waits;
}

}  // namespace lockstep::testing
